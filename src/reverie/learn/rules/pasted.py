"""Recognise lines that a person copied from elsewhere: logs, code, mail, chats, markup, tables.

Every pattern is matched against one line and takes time linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from reverie.learn.rules.sentences import ignoring_case

_MAIL = ignoring_case(
    r"(?:from|to|cc|bcc|subject|date|sent|reply-to|received|return-path|message-id|von|an|betreff|"
    r"datum|gesendet|de|para|asunto|objet|envoyé): |(?:fwd?|re|aw|wg): |begin forwarded|"
    r"(?:on|am|le) .{1,80} (?:wrote|schrieb|écrit)\b.{0,40}:$|-{2,12} ?(?:original|forwarded)"
)
# A greeting on a line of its own, to somebody other than the assistant.
_SALUTATION = ignoring_case(
    r"(?:hi|hello|hey|dear|good (?:morning|afternoon|evening|day)|hallo|liebe[rs]?)"
    r"(?! (?:there|again|assistant|claude|chatgpt|gpt|gemini|copilot|reverie|ai|bot|friend|buddy|"
    r"you|i|i'm|my|it|this|can|could|what|how|is|do)\b)(?: [^\s,!.:]{1,30}){1,4} ?[,!:]?$"
)
_LOG = ignoring_case(
    r"\[?\d{4}-\d\d-\d\d[t ]\d\d:|\[\d{1,2}:\d\d|\d{1,2}:\d\d:\d\d|\d\d:\d\d\.\d{3} -->|webvtt$|"
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec) {1,2}\d{1,2} \d\d:\d\d|"
    r"\[(?:error|warn(?:ing)?|info|debug|trace|fatal|hint|notice)\]|traceback \(|"
    r"(?:error|warn(?:ing)?|info|debug|trace|fatal|notice|hint|panic): |npm (?:err!|warn)|"
    r"[vdiwef]/[\w.]{1,40}[:(]|[\w.-]{1,40}\[\d{1,8}\]:|\S{1,80} \[?\d{1,2}:\d\d(?: ?[ap]m)?\]?$"
)
_TERMINAL = ignoring_case(
    r"[$%❯➜] \S|~ ?[%$]|>>> ?|\.\.\. \S|[\w.-]{1,40}@[\w.-]{1,40}:.{0,80}[$#%>](?: |$)|"
    r"(?:\(\w{1,20}\) )?[\w.-]{1,40}@[\w.-]{1,40} .{0,40}[%$#](?: |$)|ps [a-z]:\\|[a-z]:\\\S{0,80}>"
)
_CODE = re.compile(
    r"(?:def|class|fn|func|function|interface|struct|enum|impl|namespace) \w{1,60} ?[(:{<]|"
    r"(?:public|private|protected|static|void|int) \w[\w<> ]{0,80}[({;=]|"
    r"(?:const|let|var) \w{1,40} ?[=:]|(?:import|package|using) [\w.{}* ]{1,80};?$|"
    r"(?:if|for|while|elif|else|try|except)\b.{0,120}[:{]$|(?:print|return|raise)\b.{0,80}[;)]$|"
    r"from [\w.]{1,60} import |#include\b|#!/|//|/\*|\*/|<\?|\?>|diff --git|@@ -|"
    r"(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP) [\w*].{0,200};|commit [0-9a-f]{6,40}|"
    r"(?:---|\+\+\+) [\w/]|[+-](?=[^\s\d+-])|[\])}]{1,4}[;,]?$|[\w.]{1,60} ?[+-]?= ?\S|"
    r"(?:feat|fix|chore|docs|refactor|test|build|perf)(?:\([\w-]{1,30}\))?!?: |BREAKING CHANGE:|"
    r"(?:console|System|std|self|this)[.:]{1,2}\w{1,40}|https?://\S{1,500}$"
)
_DATA = ignoring_case(
    r"[\[{] {0,4}[\"'{\[]|\"[\w -]{1,60}\" {0,2}[:;,]|- {1,3}[a-z_]{1,30}: |[a-z_]{2,30}:$"
)
_ROW = re.compile(r"[\w\"-]{1,40}(?:[,;][\w\" .'-]{1,60}){1,20}$")
_MARKUP = ignoring_case(
    r"#{1,6} |\ue001?``|[-=_*~#+]{3,}|</?[a-z!?]|&[a-z]{2,8};|\[[^\]]{1,80}\]\([^)]{1,200}\)|"
    r"http/\d|(?:get|post|put|patch|delete|head) /\S{0,200} http/|!\[|\{%|\.\. [a-z]|={2,}"
)
_INLINE_MARKUP = ignoring_case(r"</[a-z]|&lt;|<!--|\s\|\s.{1,80}\s\|\s|→|\s->\s")
_DOCUMENT_PART = ignoring_case(
    r"[(\[](?:verse|chorus|bridge|intro|outro|hook|refrain|pre-chorus)\b|"
    r"chapter (?:\d|[ivx]+\b|one)|(?:int|ext)\. |act [ivx\d]+\b|★|☆|"
    r"\d(?:[.,]\d)? ?/ ?(?:5|10)\b(?!/)|\d stars?\b|part (?:one|\d)|§ ?\d|article \d|clause \d|"
    r"step \d|page \d|§|©|ticket #|(?:ingredients|method|attendees|present|minutes|agenda|abstract|"
    r"introduction|summary|menu|skip to content)\b:?$|[\w/-]{1,60}\.[a-z]{1,5}:?$|rt @|@\w{1,30}:|"
    r"(?:patient|pt|cc|hpi|bp)\b.{0,40}:|curriculum vitae|#{2,6} ?(?:instruction|input|system)|"
    r"\W{0,3}(?:system|assistant|user|human|ai)\W{0,3}: "
)
# The kind of a document as the first words of a line: "User manual, page 3."
_DOCUMENT = ignoring_case(
    r"(?:the |our )?(?:\w{1,20} ){0,2}(?:nda|terms|privacy policy|agreement|contract|lease|manual|"
    r"memo|press release|policy|guidelines?|briefing|invoice|transcript|podcast|report|newsletter|"
    r"lecture|handout|syllabus|faq|minutes|user story|job (?:ad|description)|datasheet|leaflet|"
    r"brochure)\b[^.!?:]{0,40}[.:] "
)
_LABEL = re.compile(
    r"(?:[-*•] )?[<(\[]?[\w@.'§-]{1,24}(?: [\w.'&-]{1,20}){0,2}[>)\]]?(?: \([\d:]{1,8}\))?:(?: |$)"
)
_CHAT = re.compile(r"<[\w.-]{1,24}> \S|[A-Z]\w{0,20} - \S")
_OWN_LABEL = ignoring_case(
    r"(?:p\.?s\.?|note|correction|update|edit|fyi|btw|by the way|question|context|background|"
    r"please|remember|also|actually|sorry|important|reminder|fun fact|about me|.{0,30}\bme|"
    r"from now on|always|never|my \w{1,20}(?: \w{1,20})?)\s{0,2}:"
)
_ITEM = re.compile(r"(?:[-*•–]|\d{1,2}[.)]) {1,4}(?=\S)")
# A title on a line of its own: not a sentence, and not addressed to anybody.
_TITLE = re.compile(r"[A-Z][^.!?,;:…\"“]{1,60}$")
_CONVERSATIONAL = ignoring_case(
    r"(?:i|i'm|i've|i'd|my|me|you|your|please|thanks|thank|thx|hi|hello|hey|ok|okay|yes|no|"
    r"quick|question|help|sorry|update|good|great|cool|nice|wow|well|so|also|btw|remember|always|"
    r"never|from now|keep|call|don't|do|is|are|am|was|has|can|it's|that's|here's|let's)\b"
)
_NO_TITLE = ignoring_case(
    r"\b(?:i|i'm|i've|my|me|mine|you|your|is|are|was|were|has|have|had|will|can|does|did|need)\b"
)


def starts_pasted_text(lines: Sequence[str], at: int) -> bool:
    """Whether text that the person did not write begins with the line ``lines[at]``."""
    line = lines[at].strip()
    if not line:
        return False
    if any(sign.match(line) for sign in (_MAIL, _LOG, _TERMINAL, _MARKUP, _DOCUMENT_PART, _CODE)):
        return True
    if _INLINE_MARKUP.search(line) or _is_data(lines, at) or _is_chat(lines, at):
        return True
    if _is_title(lines, at) or (
        _DOCUMENT.match(line) and not _NO_TITLE.search(line.split(". ")[0])
    ):
        return True
    # A greeting by name starts a letter.
    return bool(_SALUTATION.match(line)) and _has_text_after(lines, at)


def is_quoted_or_indented(line: str, at: int) -> bool:
    """Whether a line is quoted, indented or part of a table."""
    if at and line.startswith("  ") and not is_item(line):
        return True
    return line.startswith((">", "|", "    ", "\t"))


def is_item(line: str) -> bool:
    """Whether a line is an item of a list."""
    return bool(_ITEM.match(line.strip()))


def without_bullet(line: str) -> str:
    """Return an item of a list without its bullet or number."""
    return _ITEM.sub("", line.strip(), count=1)


def _is_data(lines: Sequence[str], at: int) -> bool:
    line = lines[at].strip()
    if _ROW.match(line):
        return sum(bool(_ROW.match(each.strip())) for each in lines) > 1
    return bool(_DATA.match(line)) and not _OWN_LABEL.match(line)


def _is_label(line: str) -> bool:
    return bool(_LABEL.match(line) or _CHAT.match(line)) and not _OWN_LABEL.match(line)


def _is_chat(lines: Sequence[str], at: int) -> bool:
    """Whether at least two lines have a label, as in a chat log or a form."""
    if not _is_label(lines[at].strip()):
        return False
    return sum(_is_label(line.strip()) for line in lines) > 1


def _is_title(lines: Sequence[str], at: int) -> bool:
    line = lines[at].strip()
    if not _TITLE.match(line) or len(line.split()) > 7 or _CONVERSATIONAL.match(line):
        return False
    return not is_item(line) and not _NO_TITLE.search(line) and _has_text_after(lines, at)


def _has_text_after(lines: Sequence[str], at: int) -> bool:
    return any(following.strip() for following in lines[at + 1 :])
