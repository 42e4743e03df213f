"""Finds the beginning and the end of declarations and functions in C++ sources for lint. The reader counts braces and classifies the
text before each brace; it does not parse C++. A misread declaration produces a false finding; it does not hide the rest of the file."""

import re
from dataclasses import dataclass, field

BODY_END = re.compile(r"(\)|\}|\bconst|\bnoexcept|\boverride|\bfinal|\btry|&|->[^;{}]*|\brequires\b[^;{}]*)\s*$")
LABEL = re.compile(r"^\s*(public|protected|private)\s*$")
SPACE_NAMED = re.compile(r"\bnamespace\b\s*(\w+(::\w+)*)?\s*$")


def blank(text: str) -> str:
    """`text` with comments, literals and preprocessor lines replaced by spaces; line and column numbers stay the same."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\''
        r"|^[ \t]*#(?:\\\n|[^\n])*", re.S | re.M)

    def spaces(match: re.Match) -> str:
        return re.sub(r"[^\n]", "'" if match.group()[0] in "\"'R" else " ", match.group())

    return token.sub(spaces, text)


def without_angles(text: str) -> str:
    """`text` without template parameters, arguments and attributes."""
    text = re.sub(r"\boperator\s*(<=>|<<=?|>>=?|<=|>=|<|>|->)", "operator", text)
    before = None
    while before != text:
        before = text
        text = re.sub(r"<[^<>;{}]*>", "", text)
    return re.sub(r"\[\[.*?\]\]|\balignas\s*\([^()]*\)", "", text, flags=re.S)


@dataclass
class Declaration:
    """A declaration at namespace or class scope."""

    kind: str  # function, type, enum, value, enumerator
    name: str
    first: int  # line numbers, from 1
    last: int
    text: str  # up to the body, `;` or `,`
    public: bool
    has_body: bool = False


@dataclass
class Scope:
    """An open brace and the declaration it belongs to."""

    kind: str  # namespace, class, enum, body, other
    public: bool
    access: bool = True  # whether the next member of a class is public
    owner: Declaration | None = None


@dataclass
class Reader:
    """Reads one file; `found` are its declarations in the order of their first lines."""

    text: str
    found: list[Declaration] = field(default_factory=list)
    stack: list[Scope] = field(default_factory=lambda: [Scope("namespace", True)])
    pending: str = ""
    first: int = 0

    def run(self) -> list[Declaration]:
        line = 1
        parens = 0
        for c in blank(self.text):
            scope = self.stack[-1].kind
            if c == "\n":
                line += 1
            if scope in ("body", "other") and c not in "{}":
                continue
            if c in "([":
                parens += 1
            elif c in ")]":
                parens -= 1
            if c == "{":
                self.open(line, parens)
            elif c == "}":
                self.close(line)
            elif c == ";" and parens == 0:
                self.end(line, "value")
            elif c == "," and scope == "enum" and parens == 0:
                self.end(line, "enumerator")
            elif c == ":" and LABEL.match(self.pending):
                self.stack[-1].access = self.pending.strip() == "public"
                self.pending = ""
            else:
                if not self.pending and not c.isspace():
                    self.first = line
                if self.pending or not c.isspace():
                    self.pending += c
        return sorted(self.found, key=lambda d: (d.first, d.last))

    def visible(self) -> bool:
        return all(scope.public and scope.access for scope in self.stack)

    def add(self, kind: str, line: int, has_body: bool) -> Declaration:
        name = self.name_of(kind)
        declaration = Declaration(kind, name, self.first, line, self.pending.strip(), self.visible(), has_body)
        self.found.append(declaration)
        return declaration

    def name_of(self, kind: str) -> str:
        text = without_angles(self.pending)
        if kind == "function":
            names = re.findall(r"(~?\w+|operator[^\s(]*|operator\s*\(\))\s*\(", text)
            names = [name for name in names if name not in ("requires", "sizeof", "decltype", "explicit")]
            return names[0] if names else text
        text = re.split(r"[={]|(?<!:):(?!:)", text)[0]
        names = re.findall(r"\w+", text)
        return names[-1] if names else text

    def open(self, line: int, parens: int) -> None:
        scope = self.stack[-1]
        text = without_angles(self.pending)
        if scope.kind in ("body", "other"):
            self.stack.append(Scope("other", False))
        elif parens == 0 and (match := SPACE_NAMED.search(text)):
            name = match.group(1) or ""
            public = name != "" and name.split("::")[-1] not in ("detail", "internal", "impl")
            self.stack.append(Scope("namespace", public))
            self.pending = ""
        elif parens == 0 and re.match(r"\s*extern\s*'+\s*$", text):
            self.stack.append(Scope("namespace", True))
            self.pending = ""
        elif parens == 0 and re.match(r"^[^()=]*\benum\b", text):
            self.stack.append(Scope("enum", True, owner=self.add("enum", line, False)))
            self.pending = ""
        elif parens == 0 and (match := re.match(r"^\s*(?:template\s*)?(?:\w+\s+)*?(class|struct|union)\b[^()=]*$", text)):
            owner = self.add("type", line, False)
            self.stack.append(Scope("class", True, match.group(1) != "class", owner))
            self.pending = ""
        elif parens == 0 and self.is_body(text):
            self.stack.append(Scope("body", False, owner=self.add("function", line, True)))
        else:
            self.stack.append(Scope("other", False))

    @staticmethod
    def is_body(text: str) -> bool:
        if "(" not in text or not BODY_END.search(text):
            return False
        return "operator" in text or "=" not in re.sub(r"\([^()]*(\([^()]*\)[^()]*)*\)", "", text)

    def close(self, line: int) -> None:
        if len(self.stack) == 1:
            return
        if self.stack[-1].kind == "enum" and self.pending.strip():
            self.end(line, "enumerator")
        scope = self.stack.pop()
        if scope.owner:
            scope.owner.last = line
        if scope.kind == "other":
            if self.stack[-1].kind not in ("body", "other"):
                self.pending += "}"
        else:
            self.pending = ""

    def end(self, line: int, kind: str) -> None:
        text = without_angles(self.pending).strip()
        if text:
            head = re.split(r"=(?!=)", text)[0] if "operator" not in text else text
            is_function = kind == "value" and "(" in head and not re.match(r"(using|typedef|static_assert)\b", text)
            if kind == "value" and re.match(r"(template\s*)?(enum|class|struct|union)\b[\s\w:]*$", text):
                kind = "forward"
            self.add("function" if is_function else kind, line, False)
        self.pending = ""


def declarations(text: str) -> list[Declaration]:
    """All declarations at namespace and class scope of a file's text."""
    return Reader(text).run()
