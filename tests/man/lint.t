#!/usr/bin/env python3
"""Checks the manual pages: mandoc reports no warning, sections are in the order of fp8-hacking(7), each tool has a page, and
each referenced fp8 page exists."""

import os
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from mdoc import Page, Tap, pages  # noqa: E402

SRC = Path(os.environ.get("SRC") or Path(__file__).resolve().parents[2]).resolve()
ORDER = ["NAME", "SYNOPSIS", "DESCRIPTION", "ENVIRONMENT", "FILES", "EXIT STATUS", "EXAMPLES", "DIAGNOSTICS", "SEE ALSO",
         "STANDARDS", "CAVEATS"]
NEEDED = {"1": ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "EXAMPLES", "SEE ALSO"]}


def mandoc(page: Page) -> str:
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page.path], capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip()


def too_wide(page: Page) -> str:
    """What groff says where a line does not fit into a terminal of 80 columns: it then breaks a table's last column at each word."""
    done = subprocess.run(["groff", "-mandoc", "-Kutf8", "-Tutf8", "-rLL=78n", "-rLT=78n", page.path], capture_output=True, text=True, check=False)
    return done.stderr.strip()


def main() -> None:
    tap = Tap()
    found = pages(SRC)
    for page in found:
        complaints = mandoc(page)
        tap.result(complaints == "", f"{page.name}: mandoc reports no warning", complaints)
        wide = too_wide(page)
        tap.result(wide == "", f"{page.name}: its lines fit into 80 columns", wide)
        headings = page.headings()
        known = [title for title in headings if title in ORDER]
        tap.result(known == [title for title in ORDER if title in headings], f"{page.name}: sections are in order",
                   f"has {known}", f"order {ORDER}")
        missing = [title for title in NEEDED.get(page.section, ["NAME"]) if title not in headings]
        tap.result(not missing, f"{page.name}: the required sections exist", f"missing: {missing}")
        hidden = [page.where(line) for line in page.lines if line.text.startswith("'")]
        tap.result(not hidden, f"{page.name}: no line begins with ', which man would hide", *hidden)
        text = "\n".join(line.text for line in page.lines)
        names = {f"{name}.{section}" for name, section in re.findall(r"^\.(?:It )?Xr (fp8[\w-]*) (\d)", text, re.M)}
        gone = sorted(names - {other.name for other in found})
        tap.result(not gone, f"{page.name}: the referenced fp8 pages exist", f"missing: {', '.join(gone)}")
    tools = sorted(path.parent.name + ".1" for path in SRC.glob("tools/*/crate.mk"))
    written = sorted(page.name for page in found if page.section == "1")
    tap.result(tools == written, "there is one page in section 1 per tool", f"tools {tools}", f"pages {written}")
    tap.done()


main()
