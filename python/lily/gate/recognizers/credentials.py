"""Credentials whose form gives them away: vendor keys with a fixed beginning, key files, JWT, connection strings.

Each format is a literal beginning and the characters that follow. The literal is looked for first, as plain text, so a
hundred formats cost little more than one. Generic secrets, known by the words around them, are next door.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lily.gate.folding import View

from .hits import Hit
from .randomness import dull, is_random, wordiness

# kind, literal beginning, what follows; with a beginning that words have too, what follows must tell it from them
_FORMATS_TEXT = r"""
aws_key_id AKIA [0-9A-Z]{12,20}
aws_key_id ASIA [0-9A-Z]{12,20}
aws_key_id AGPA [0-9A-Z]{12,20}
aws_key_id AIDA [0-9A-Z]{12,20}
aws_key_id AROA [0-9A-Z]{12,20}
aws_key_id AIPA [0-9A-Z]{12,20}
aws_key_id ANPA [0-9A-Z]{12,20}
aws_key_id ABIA [0-9A-Z]{12,20}
aws_key_id ACCA [0-9A-Z]{12,20}
aws_bedrock ABSK [0-9A-Za-z+/]{60,200}={0,2}
aws_mws amzn.mws. [0-9a-z-]{30,40}
github ghp_ [0-9A-Za-z]{30,255}
github gho_ [0-9A-Za-z]{30,255}
github ghu_ [0-9A-Za-z]{30,255}
github ghs_ [0-9A-Za-z]{30,255}
github ghr_ [0-9A-Za-z]{30,255}
github github_pat_ [0-9A-Za-z_]{22,255}
gitlab glpat- [\w-]{18,60}(?:\.[\w-]{2,60}){0,2}
gitlab glptt- [\w-]{20,60}
gitlab gldt- [\w-]{18,60}
gitlab glrt- [\w.-]{18,60}
gitlab glcbt- [\w-]{18,60}
gitlab glsoat- [\w-]{18,60}
gitlab glft- [\w-]{18,60}
gitlab gloas- [\w-]{20,80}
gitlab GR1348941 [\w-]{18,40}
bitbucket ATBB [0-9A-Za-z]{24,40}
atlassian ATATT3 [\w=.-]{50,400}
atlassian ATCTT3 [\w=.-]{50,400}
slack xoxb- [0-9A-Za-z-]{10,250}
slack xoxp- [0-9A-Za-z-]{10,250}
slack xoxa- [0-9A-Za-z-]{10,250}
slack xoxe- [0-9A-Za-z-]{10,250}
slack xoxe.xox [bp]-[0-9A-Za-z-]{10,250}
slack xoxr- [0-9A-Za-z-]{10,250}
slack xoxs- [0-9A-Za-z-]{10,250}
slack xoxo- [0-9A-Za-z-]{10,250}
slack xoxc- [0-9A-Za-z-]{10,250}
slack xoxd- [0-9A-Za-z%/+-]{10,400}
slack xapp- [0-9A-Za-z-]{20,250}
stripe sk_live_ [0-9A-Za-z]{10,200}
stripe sk_test_ [0-9A-Za-z]{10,200}
stripe rk_live_ [0-9A-Za-z]{10,200}
stripe rk_test_ [0-9A-Za-z]{10,200}
stripe whsec_ [0-9A-Za-z+/]{20,100}={0,2}
openai sk-proj- [\w-]{16,300}
openai sk-svcacct- [\w-]{16,300}
openai sk-admin- [\w-]{16,300}
openai sk-None- [\w-]{16,300}
anthropic sk-ant- [\w-]{16,300}
openrouter sk-or-v1- [0-9A-Za-z]{20,100}
openai sk- (?=[a-z-]{0,24}[0-9A-Z])[0-9A-Za-z][\w-]{15,200}
google AIza [\w-]{30,60}
google ya29. [\w-]{20,400}
google GOCSPX- [\w-]{20,40}
google 1//0 [\w-]{30,120}
google AQ.Ab8R [\w-]{30,60}
npm npm_ [0-9A-Za-z]{30,60}
huggingface hf_ [A-Za-z0-9]{28,60}
huggingface api_org_ [A-Za-z]{28,60}
replicate r8_ [0-9A-Za-z]{30,50}
groq gsk_ [0-9A-Za-z]{30,80}
perplexity pplx- [0-9A-Za-z]{30,80}
xai xai- [0-9A-Za-z]{40,120}
nvidia nvapi- [\w-]{40,100}
sendgrid SG. [\w-]{16,32}\.[\w-]{16,64}
sendinblue xkeysib- [0-9A-Za-z]{40,80}-[0-9A-Za-z]{12,20}
sendinblue xsmtpsib- [0-9A-Za-z]{40,80}-[0-9A-Za-z]{12,20}
mailgun key- [0-9a-z]{32}(?![0-9a-z])
mailgun pubkey- [0-9a-z]{32}(?![0-9a-z])
pypi pypi- [\w-]{50,300}
rubygems rubygems_ [0-9a-z]{40,60}
cratesio cio [0-9A-Za-z]{32}(?![0-9A-Za-z])
nuget oy2 [0-9a-z]{40,46}(?![0-9a-z])
clojars CLOJARS_ [0-9a-z]{50,70}
docker dckr_pat_ [\w-]{20,60}
docker dckr_oat_ [\w-]{20,60}
digitalocean dop_v1_ [0-9a-z]{40,80}
digitalocean doo_v1_ [0-9a-z]{40,80}
digitalocean dor_v1_ [0-9a-z]{40,80}
shopify shpat_ [0-9A-Za-z]{30,40}
shopify shpca_ [0-9A-Za-z]{30,40}
shopify shppa_ [0-9A-Za-z]{30,40}
shopify shpss_ [0-9A-Za-z]{30,40}
shopify shptka_ [0-9A-Za-z]{30,40}
hashicorp hvs. [\w-]{20,300}
hashicorp hvb. [\w-]{20,300}
hashicorp hvr. [\w-]{20,300}
age AGE-SECRET-KEY-1 [0-9A-Z]{50,64}
grafana glsa_ [0-9A-Za-z]{28,40}_[0-9A-Za-z]{6,10}
grafana glc_ [0-9A-Za-z+/]{30,400}={0,2}
grafana eyJrIjoi [0-9A-Za-z+/_-]{30,400}={0,2}
alibaba LTAI [0-9A-Za-z]{12,24}
tencent AKID [0-9A-Za-z]{28,40}
databricks dapi [0-9a-z]{30,40}(?:-[0-9])?
postman PMAK- [0-9a-z]{20,28}-[0-9a-z]{30,38}
figma figd_ [\w-]{30,60}
linear lin_api_ [0-9A-Za-z]{30,50}
linear lin_oauth_ [0-9A-Za-z]{30,70}
notion ntn_ [0-9A-Za-z]{40,60}
notion secret_ [0-9A-Za-z]{40,50}(?![0-9A-Za-z])
posthog phc_ [0-9A-Za-z]{30,60}
posthog phx_ [0-9A-Za-z]{30,60}
sentry sntrys_ [\w+/=-]{40,400}
sentry sntryu_ [0-9a-z]{50,70}
readme rdme_ [0-9a-z]{50,80}
pulumi pul- [0-9a-z]{40}(?![0-9a-z])
prefect pnu_ [0-9a-z]{36}(?![0-9a-z])
prefect pnb_ [0-9a-z]{36}(?![0-9a-z])
square sq0atp- [\w-]{20,40}
square sq0csp- [\w-]{40,50}
square sq0idp- [\w-]{20,40}
square EAAA [\w-]{50,80}
facebook EAAC [0-9A-Za-z]{30,300}
facebook EAACEdEose0cBA [0-9A-Za-z]{20,300}
newrelic NRAK- [0-9A-Z]{20,40}
newrelic NRJS- [0-9a-z]{16,24}
newrelic NRII- [\w-]{30,36}
tailscale tskey- [0-9A-Za-z-]{20,90}
contentful CFPAT- [\w-]{40,50}
supabase sbp_ [0-9a-z]{36,44}
supabase sb_secret_ [\w-]{20,50}
vercel vercel_ [0-9A-Za-z]{20,40}
netlify nfp_ [0-9A-Za-z]{36,44}
flyio fo1_ [\w-]{40,50}
flyio FlyV1 [ ]fm\d_[\w+/=,-]{40,900}
terraform .atlasv1. [\w=-]{50,80}
doppler dp.pt. [0-9A-Za-z]{40,48}
doppler dp.st. [\w.-]{40,80}
doppler dp.ct. [0-9A-Za-z]{40,48}
planetscale pscale_tkn_ [\w.-]{30,64}
planetscale pscale_pw_ [\w.-]{30,64}
planetscale pscale_oauth_ [\w.-]{30,64}
buildkite bkua_ [0-9a-z]{36,44}
sourcegraph sgp_ (?:[0-9a-z]{16,20}_|local_)?[0-9a-z]{36,44}
sonar sqp_ [0-9a-z]{36,44}
sonar squ_ [0-9a-z]{36,44}
sonar sqa_ [0-9a-z]{36,44}
artifactory AKCp [0-9A-Za-z]{60,80}
artifactory cmVmdGtuOj [0-9A-Za-z]{40,80}
okta 00 [A-Za-z0-9_-]{40}(?![\w-])
airtable pat [0-9A-Za-z]{14}\.[0-9a-z]{60,68}
azure_storage AccountKey= [0-9A-Za-z+/]{40,100}={0,2}
azure_sas SharedAccessKey= [0-9A-Za-z+/]{30,100}={0,2}
azure_sas sig= [0-9A-Za-z%+/]{36,120}={0,2}
azure_ad 8Q~ [\w.~-]{30,40}
twilio SK [0-9a-f]{32}(?![0-9a-z])
twilio AC [0-9a-f]{32}(?![0-9a-z])
plivo MA [0-9A-Z]{18}(?![0-9A-Za-z])
telegram :AA [\w-]{32,35}(?![\w-])
discord mfa. [\w-]{60,100}
asana 1/ [0-9]{15,20}:[0-9a-z]{30,36}
dropbox sl. [\w-]{60,400}
adobe p8e- [\w-]{30,40}
mapbox sk.eyJ [\w-]{30,200}\.[\w-]{16,60}
turbopuffer tpuf_ [0-9A-Za-z]{16,60}
tavily tvly- [0-9A-Za-z-]{20,60}
elevenlabs sk_ [0-9a-z]{40,64}(?![0-9a-z])
fireworks fw_ [0-9A-Za-z]{22,40}
langfuse sk-lf- [0-9a-z-]{30,40}
langsmith lsv2_ [0-9A-Za-z_]{30,80}
cloudinary cloudinary:// [0-9]{10,20}:[\w-]{20,40}
duffel duffel_ (?:test|live)_[\w-]{40,50}
frameio fio-u- [\w-]{60,70}
flutterwave FLWSECK [_-](?:TEST-)?[0-9a-z]{12,40}(?:-X)?
frame EZAK [0-9A-Za-z]{50,60}
easypost EZTK [0-9A-Za-z]{50,60}
paystack sk_live_ [0-9a-z]{40}
lob live_pub_ [0-9a-z]{30,36}
typeform tfp_ [\w-]{36,70}
shippo shippo_live_ [0-9a-z]{36,44}
dynatrace dt0 [a-z][0-9]{2}\.[0-9A-Z]{24}\.[0-9A-Z]{60,68}
hubspot pat-na1- [0-9a-z-]{36}
hubspot pat-eu1- [0-9a-z-]{36}
teams .webhook.office.com/webhookb2/ [0-9a-z@/-]{60,200}
slack_webhook hooks.slack.com/ (?:services|workflows|triggers)/[\w/+]{20,120}
discord_webhook discord.com/api/webhooks/ [0-9]{10,22}/[\w-]{40,100}
discord_webhook discordapp.com/api/webhooks/ [0-9]{10,22}/[\w-]{40,100}
zapier_webhook hooks.zapier.com/hooks/catch/ [\w/]{10,60}
"""
_FORMATS = tuple(
    (kind, literal, re.compile(re.escape(literal) + tail))
    for kind, literal, tail in (line.split(" ", 2) for line in _FORMATS_TEXT.split("\n") if line)
)
_REST = re.compile(r"[0-9A-Za-z_-]{1,512}")
# What belongs to the key and stands before its literal.
_HEADS = {
    ".atlasv1.": re.compile(r"[0-9A-Za-z]{10,20}$"),
    ":AA": re.compile(r"[0-9]{8,12}$"),
    "8Q~": re.compile(r"[\w.~-]{2,4}$"),
    ".webhook.office.com/webhookb2/": re.compile(r"https?://[\w-]{1,60}$"),
    "hooks.slack.com/": re.compile(r"https?://$"),
    "discord.com/api/webhooks/": re.compile(r"https?://(?:\w{1,10}\.)?$"),
    "discordapp.com/api/webhooks/": re.compile(r"https?://(?:\w{1,10}\.)?$"),
    "hooks.zapier.com/hooks/catch/": re.compile(r"https?://$"),
}
# Addresses that let anybody who has them post: capability URLs of chat tools, by shape where the host is not known.
_CAPABILITY = re.compile(
    r"https?://[\w.-]{4,80}/(?:[\w-]{1,30}/){0,3}(?:[0-9A-Z]{8,12}/[0-9A-Z]{8,12}/[0-9A-Za-z]{18,40}|"
    r"[0-9a-z]{8}(?:-[0-9a-z]{4}){3}-[0-9a-z]{12}@[0-9a-z][\w/@-]{30,200})"
)
_NAMES = ("AccountKey=", "SharedAccessKey=", "sig=")  # of these the value alone is the secret

_JWT = re.compile(
    r"eyJ[\w-]{8,4000}\.[\w-]{8,8000}\.[\w-]{8,2000}|"
    r"eyJ[\w-]{8,2000}\.[\w-]{0,1000}\.[\w-]{8,1000}\.[\w-]{8,16000}\.[\w-]{8,1000}"
)
_KEY_FILE = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINES = re.compile(
    r"(?:[ \t\r\n\"'+,|>*#-]{0,12}(?:Proc-Type:[^\n]{0,80}|DEK-Info:[^\n]{0,120}|Version:[^\n]{0,80}|"
    r"Comment:[^\n]{0,80}|[A-Za-z0-9+/=]{4,20000})){1,2000}"
)
_MAX_KEY = 40_000
_CONNECTION = re.compile(r"[\"'<(\[{]?[^\s:@/\"'<>]{0,128}:([^\s\"'<>]{1,400})$")
_AUTHORITY = re.compile(r"[^\s\"'<>`]{1,600}")
_HASH = re.compile(r"\$(?<![\w$].)[a-z0-9]{1,12}\$[\w./=,:$*+@-]{16,4000}", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"^(?:[x*.•…_-]+|<[^>]*>?|\$.*|%[\w]+%|\{.*|\[.*|:?your.*|.*(?:placeholder|redacted).*|pass(?:word|wd)?|pwd|"
    r"secret|user|token|xxx+|\*+)$",
    re.IGNORECASE,
)


def find(view: View) -> Iterator[Hit]:
    """The credentials of a view that need no cue."""
    yield from _keys(view)
    yield from _tokens(view)
    yield from _key_files(view)
    yield from _connections(view)
    for match in _CAPABILITY.finditer(view.folded):
        yield Hit(*match.span(), "secret", "webhook", "validated", 0.9, "capability URL")
    if "$" in view.folded:
        for match in _HASH.finditer(view.folded):
            if sum(c.isalnum() for c in match[0]) >= 20 and any(c.isdigit() for c in match[0]):
                yield Hit(match.start(), match.end(), "secret", "password_hash", "validated", 0.9, "password hash")


def _keys(view: View) -> Iterator[Hit]:
    text = view.folded
    for kind, literal, pattern in _FORMATS:
        at = text.find(literal)
        while at >= 0:
            match = pattern.match(text, at)
            if match:
                start = at + (len(literal) if literal in _NAMES else 0)
                head = _HEADS.get(literal)
                if head:
                    before = head.search(text[max(0, at - 80) : at])
                    start = at - len(before[0]) if before else -1
                if (
                    start >= 0
                    and (literal in _NAMES or _starts(text, start))
                    and not _is_dull(match[0][len(literal) :])
                ):
                    end = match.end()
                    rest = _REST.match(text, end)  # a longer key than its vendor makes today is masked whole
                    if rest and text[end - 1].isalnum() and rest[0][0].isalnum():
                        end = rest.end()
                    while text[end - 1] in ".-":
                        end -= 1
                    yield Hit(start, end, "secret", kind, "validated", 0.98, f"form of {kind}")
            at = text.find(literal, at + len(literal))


def _starts(text: str, at: int) -> bool:
    """Whether a key may start here: behind no letter or digit, or behind a percent escape such as %3D."""
    return (
        at == 0
        or not (text[at - 1].isalnum() or text[at - 1] in "_")
        or (at >= 3 and text[at - 3] == "%")
        or ord(text[at - 1]) > 0x2E80
    )


def _is_dull(tail: str) -> bool:
    plain = re.sub(r"[^0-9A-Za-z]", "", tail)
    if len(set(plain)) < 5 or (dull(plain) and len(set(plain)) < 12):
        return True
    return plain.isalpha() and plain.islower() and len(plain) < 30 and wordiness(plain) > 0.6


def _tokens(view: View) -> Iterator[Hit]:
    text = view.folded
    at = text.find("eyJ")
    while at >= 0:
        match = _JWT.match(text, at) if _starts(text, at) else None
        if match:
            yield Hit(at, match.end(), "secret", "jwt", "validated", 0.98, "JSON web token")
        at = text.find("eyJ", match.end() if match else at + 3)


def _key_files(view: View) -> Iterator[Hit]:
    text = view.folded
    at = 0
    for match in _KEY_FILE.finditer(text):
        if match.start() < at:
            continue
        end = _KEY_END.search(text, match.end(), match.end() + _MAX_KEY)
        another = text.find("-----BEGIN", match.end(), end.start() if end else match.end())
        if end and another < 0:
            at = end.end()
        else:
            lines = _KEY_LINES.match(text, match.end(), match.end() + _MAX_KEY)
            if lines is None or len(lines[0]) < 40:
                continue
            at = lines.end()
        body = text[match.end() : at]
        if sum(c.isalnum() for c in body) >= 48 + 14 * ("END" in body):
            yield Hit(match.start(), at, "secret", "pem", "validated", 0.99, "private key file")


def _connections(view: View) -> Iterator[Hit]:
    """Passwords of URLs with a user: scheme://user:password@host."""
    text = view.folded
    at = text.find("://")
    while at >= 0:
        run = _AUTHORITY.match(text, at + 3)
        authority = run[0] if run else ""
        # The last @ before the path ends the password, which may itself hold @, / or ?
        host = authority.rfind("@")
        if host > 0:
            bare = authority[:host]
            if len(bare) >= 20 and re.fullmatch(r"[0-9A-Za-z_.-]+", bare) and is_random(bare):
                yield Hit(at + 3, at + 3 + host, "secret", "token", "validated", 0.95, "token in a URL")
            match = _CONNECTION.match(bare)
            user = match[0][: match.start(1) - 1] if match else ""
            if len(user) >= 20 and is_random(user):
                yield Hit(at + 3, at + 3 + len(user), "secret", "token", "validated", 0.95, "token in a URL")
            if (
                match
                and len(match[1]) >= 3
                and not _PLACEHOLDER.match(match[1])
                and (at == 0 or text[at - 1].isalnum())
            ):
                start = at + 3 + match.start(1)
                yield Hit(start, start + len(match[1]), "secret", "password", "validated", 0.95, "password in a URL")
        at = text.find("://", at + 3)
