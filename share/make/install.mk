# Installed programs are stripped; STRIP= installs them as built.
STRIP   ?= $(shell $(CXX) -print-prog-name=strip)
datadir := $(DESTDIR)$(PREFIX)/share
bash_completions := $(datadir)/bash-completion/completions
zsh_completions  := $(datadir)/zsh/site-functions
fish_completions := $(datadir)/fish/vendor_completions.d
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(datadir)/fp8 $(bash_completions) $(zsh_completions) $(fish_completions)
	install -m 755 $(programs) $(DESTDIR)$(PREFIX)/bin
	$(if $(STRIP),$(STRIP) $(TOOLS:%=$(DESTDIR)$(PREFIX)/bin/%))
	for s in 1 5 7; do install -d $(datadir)/man/man$$s && install -m 644 man/man$$s/*.$$s $(datadir)/man/man$$s; done
	for d in machines presets phases slurm templates text tokenizers/shakespeare; do install -d $(datadir)/fp8/$$d && install -m 644 share/$$d/* $(datadir)/fp8/$$d; done
	for t in $(TOOLS); do \
	  $O/bin/$$t --completion bash >$(bash_completions)/$$t && $O/bin/$$t --completion zsh >$(zsh_completions)/_$$t && \
	  $O/bin/$$t --completion fish >$(fish_completions)/$$t.fish || exit 1; \
	done
	ln -sf fp8-step $(bash_completions)/mpirun && ln -sf fp8-step.fish $(fish_completions)/mpirun.fish
uninstall:
	rm -f $(TOOLS:%=$(DESTDIR)$(PREFIX)/bin/%) $(TOOLS:%=$(bash_completions)/%) $(TOOLS:%=$(zsh_completions)/_%) \
	  $(TOOLS:%=$(fish_completions)/%.fish) $(bash_completions)/mpirun $(fish_completions)/mpirun.fish $(patsubst man/%,$(datadir)/man/%,$(wildcard man/man?/*))
	rm -rf $(datadir)/fp8
.PHONY: install uninstall
