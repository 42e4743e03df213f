"""Reads sections, flags and examples from manual pages in mdoc. It does not render macros."""

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

ESCAPES = {"e": "\\", "&": "", "-": "-", " ": " ", "(aq": "'", "(dq": '"', "(ti": "~", "(ha": "^", "(ga": "`", "(bs": "\\"}


class PageError(Exception):
    """An error in a page: `path:line: message`."""


@dataclass
class Line:
    """One line of a page's source."""

    number: int
    text: str


@dataclass
class Example:
    """A command and its expected output."""

    number: int
    command: str
    output: list[str] = field(default_factory=list)


def plain(text: str, where: str) -> str:
    """`text` of a literal block with its escapes replaced."""

    def character(match: re.Match) -> str:
        name = match.group(1)
        if name.startswith("["):
            name = "(" + name[1:-1]
        if name not in ESCAPES:
            raise PageError(f"{where}: unknown escape \\{match.group(1)}")
        return ESCAPES[name]

    return re.sub(r"\\(\(..|\[[^]]*\]|.|$)", character, text)


class Page:
    """A manual page, for example man/man1/fp8-init.1."""

    def __init__(self, path: Path):
        self.path = path
        self.name = path.name
        self.section = path.suffix[1:]
        lines = path.read_text(encoding="utf-8").split("\n")
        self.lines = [Line(i + 1, text) for i, text in enumerate(lines) if not text.startswith('.\\"')]

    def where(self, line: Line) -> str:
        return f"{self.path}:{line.number}"

    def headings(self) -> list[str]:
        """Titles of the sections, in the order of the page."""
        return [" ".join(shlex.split(line.text[4:])) for line in self.lines if line.text.startswith(".Sh ")]

    def part(self, title: str) -> list[Line]:
        """Lines of one section, without its heading."""
        inside, part = False, []
        for line in self.lines:
            if line.text.startswith(".Sh "):
                inside = " ".join(shlex.split(line.text[4:])) == title
            elif inside:
                part.append(line)
        return part

    def blocks(self) -> list[list[Line]]:
        """The literal blocks of the page. A command in `.Dl` is an error, since examples.t would not run it."""
        blocks, block = [], None
        for line in self.lines:
            if line.text.startswith(".Dl $"):
                raise PageError(f"{self.where(line)}: a command must be in a .Bd -literal block, since examples in .Dl are not tested")
            if line.text.startswith(".Bd -literal"):
                block = []
            elif line.text == ".Ed" and block is not None:
                blocks.append(block)
                block = None
            elif block is not None:
                block.append(line)
        return blocks

    def examples(self) -> list[Example]:
        """Each `$ command` in a literal block with the output lines that follow."""
        found = []
        for block in self.blocks():
            if any(line.text.startswith("$ ") for line in block):
                found += self.examples_of(block)
        return found

    def examples_of(self, block: list[Line]) -> list[Example]:
        found, continued = [], False
        for line in block:
            if line.text.startswith("."):
                raise PageError(f"{self.where(line)}: a macro within an example")
            text = plain(line.text, self.where(line))
            if continued:
                found[-1].command += "\n" + text
            elif text.startswith("$ "):
                found.append(Example(line.number, text[2:]))
            elif not found:
                raise PageError(f"{self.where(line)}: output before the first command")
            else:
                found[-1].output.append(text)
            continued = (continued or text.startswith("$ ")) and text.endswith("\\")
        return found

    def flags(self) -> set[str]:
        """Flags in the heads of list items: `--name`, `-n`; `--[no-]name` counts as two flags."""
        found = set()
        for line in self.lines:
            if line.text.startswith(".It Fl "):
                found |= flags_in(line.text[4:])
        return found


def flags_in(text: str) -> set[str]:
    """Flags in a line of macros: `Fl o , Fl -output Ar FILE`, `Fl Fl output`."""
    found, dashes = set(), 0
    for word in text.split():
        if word == "Fl":
            dashes += 1
        elif dashes:
            name = "-" * dashes + word.replace("\\-", "-")
            dashes = 0
            optional = re.fullmatch(r"--\[no-\](.*)", name)
            found |= {"--" + optional.group(1), "--no-" + optional.group(1)} if optional else {name}
    return found


def pages(root: Path) -> list[Page]:
    """All pages below root/man, by name."""
    return [Page(path) for path in sorted(root.glob("man/man?/*.[0-9]"))]


class Tap:
    """Prints results in TAP for `prove`."""

    def __init__(self) -> None:
        self.count = 0

    def result(self, good: bool, name: str, *notes: str) -> None:
        self.count += 1
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}".replace("#", "\\#"), flush=True)
        if not good:
            for note in notes:
                for line in note.split("\n"):
                    print("# " + line)

    def done(self) -> None:
        print(f"1..{self.count}")
