"""Lists the files of a tree: tracked files and untracked files that git does not ignore; without .git, all files outside build*."""

import subprocess
from pathlib import Path


def listed(root: Path) -> list[str]:
    """Paths of regular files below `root`, relative to it, sorted."""
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"]
        names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    else:
        names = [str(path.relative_to(root)) for path in root.rglob("*")]
    kept = {name for name in names if name and not name.startswith("build")}
    return sorted(name for name in kept if (root / name).is_file() and not (root / name).is_symlink())


def text_of(path: Path) -> str | None:
    """The text of a file; None if the file is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def shebang(path: Path) -> str:
    """The name of a script's interpreter (sh, bash, python3); empty if the file has no #! line."""
    with path.open("rb") as file:
        first = file.readline(100)
    if not first.startswith(b"#!"):
        return ""
    words = first[2:].decode(errors="replace").split()
    return Path(words[-1] if words[:1] and Path(words[0]).name == "env" else words[0]).name if words else ""
