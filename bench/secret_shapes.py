"""How keys of many services look, for measuring: not what the rules were written from.

Taken mechanically from the examples that come with the rules of Kingfisher 1.112 (Apache-2.0, a
scanner of MongoDB): of every second service, each example reduced to its fixed letters and to what
kind of letters stand between them. ``{h32}`` is 32 of 0-9a-f, H of 0-9A-F, d of digits, l of small
letters and digits, u of capitals and digits, m of all three.
"""

from __future__ import annotations

import random
import re
import string
from typing import NamedTuple

LETTERS = {
    "h": "0123456789abcdef",
    "H": "0123456789ABCDEF",
    "d": string.digits,
    "l": string.ascii_lowercase + string.digits,
    "u": string.ascii_uppercase + string.digits,
    "m": string.ascii_letters + string.digits,
}
_PART = re.compile(r"\{(\w)(\d+)\}")
_NAMED = (
    "{name}_API_KEY={secret}",
    "my {service} api key is {secret}",
    '{{"{service}_token": "{secret}"}}',
    "{service} secret: {secret}",
    'client = {service}.Client(api_key="{secret}")',
    "curl -H 'Authorization: Bearer {secret}' https://api.{service}.test/v1/things",
)
_BARE = ("{secret}", "Use {secret} for the deploy, please", "it is `{secret}`.")


class Shape(NamedTuple):
    """How one service's key looks."""

    service: str
    notation: str

    @property
    def begins(self) -> bool:
        """Whether it begins with letters that are the same in every key."""
        return len(self.notation.partition("{")[0]) >= 3

    def key(self, chance: random.Random) -> str:
        return _PART.sub(
            lambda part: "".join(chance.choices(LETTERS[part[1]], k=int(part[2]))), self.notation
        )


class Case(NamedTuple):
    """A text with one key in it."""

    service: str
    text: str
    secret: str


def cases(seed: int = 0) -> list[Case]:
    """A key of every shape in texts that name it, and alone where its beginning tells it."""
    chance, made = random.Random(seed), []
    for number, shape in enumerate(SHAPES):
        contexts = [_NAMED[number % len(_NAMED)]]
        if shape.begins:
            contexts.append(_BARE[number % len(_BARE)])
        for context in contexts:
            secret = shape.key(chance)
            text = context.format(name=shape.service.upper(), service=shape.service, secret=secret)
            made.append(Case(shape.service, text, secret))
    return made


SHAPES = tuple(
    Shape(*line.split(maxsplit=1))
    for line in r"""
1password 1PRK-{u4}-{u4}-{u4}-{u4}-{u4}-{u4}-{u4}-{d4}-{u4}-{u4}-{u4}-{u4}-{u4}
1password {u2}-{u6}-{u6}-{u5}-{u5}-{u5}-{u5}
abuseipdb {h80}
adafruitio aio_{m28}
age AGE-SECRET-KEY-PQ-{u59}
age AGE-SECRET-KEY-{u59}
agora {h32}
ai21studio {l8}-{l4}-{l4}-{l4}-{h12}
akamai {m10}-{m15}
amazonmws amzn.mws.{l8}-{l4}-{l4}-{l4}-{h12}
amplitude {h32}
anthropic sk-ant-oat01-{m45}
anthropic sk-ant-ort01-{m61}
anthropic sk-ant-{l6}-{m38}-{m56}
anthropic sk-ant-{l7}-{m96}
apify apify_api_{m36}
apollo {m3}-{m18}
appcenter {h40}
asaas $aact_prod_{m32}
asana {d1}/{d16}/{d16}:{h32}
asana {d1}/{d16}:{h32}
asana {d1}/{h32}
asana {m35}
assemblyai {h32}
atlassian ATATT3xFf{m6}_{m6}-{m24}_{m6}-{m24}_{m6}-{m21}={u8}
atlassian {m24}
atlassian {m45}_-{m50}
atlassian {m7}_{m6}-{m24}_{m6}-{m21}
auth {h64}
auth {m26}==
auth0 {m27}-{m36}
aws ABSKQmVkcm9ja0{m118}
aws {m40}
azure {l52}
azure {m20}.{m172}.{m51}
azure {m42}+{m9}
azure {m47}=
azure {m4}~{m27}
azure {m85}
azurebatch {m76}+{m9}==
azurecosmosdb {m76}+{m9}==
azureeventgrid {m43}==
azuremixedreality {h32}
azuresignalr {m55}+/==
azuresql {m7}!Pass#{d4}
bamboo {m44}
baseten {m8}.{m32}
beamer b_{m44}
bitbucket ATBB{m32}
bitbucket ATCTT3xFfGN{m6}_{m6}-{m23}_{m6}-{m23}_{m6}-{m18}={u8}
bitbucket BBDC-{m44}
bitbucket {m11}_{m32}
bitly {h40}
bitrise {m64}
blockprotocol b10ck5.{m32}.{m36}
blynk {m16}_{m15}
blynk {m18}-{m21}
blynk {m40}
branchio key_live_{m32}
branchio key_test_{m32}
brave {m5}_{m25}
brevo xkeysib-{h64}-{h16}
browserbase bb_live_{l27}
browserstack {m20}
bunnynet {l8}-{l4}-{l4}-{l4}-{h12}
buttercms {l40}
calendly eyJ{m95}.{m70}.{m61}
canva cnvca{m16}-{m6}_{m4}-{m22}
censys {m32}
cerebras csk-{l48}
chartmogul {l32}
checkout sk_test_{l8}-{d4}-{d4}-{l4}-{h12}
checkout sk_{l8}-{l4}-{l4}-{l4}-{h12}
cielo {m32}
circleci CCIPAT_{m22}_{h40}
cisco ${d1}${l3}${l13}
civo {l50}
clearbit {l35}
closecrm api_{m22}.{m22}
cloudflare cfut_{m41}
cloudflare {l37}_{l2}
codacy {l20}
coinlayer {l32}
confluent cflt{m41}+{m18}
confluent {m64}
contentstack {l34}
couchbase {m74}
courier pk_prod_{l24}
customerio {h20}
customerio {h32}
cypress {l8}-{l4}-{d4}-{l4}-{h12}
daily {h64}
databricks dapi{h32}
databricks dapi{h32}-{d1}
datadog pub{h32}
datadog {h32}
datadog {m40}
datastax AstraCS:{m48}
deepl {l8}-{l4}-{l4}-{l4}-{h12}
deepl {l8}-{l4}-{l4}-{l4}-{h12}:fx
deepseek sk-{h32}
definednetworking dnkey-{u26}-{u52}
detectify {l8}-{l4}-{l4}-{l4}-{h12}
devcycle dvc_client_{l11}
devcycle dvc_mobile_{l11}
devcycle dvc_server_{l11}
deviantart {h32}
deviantart {m40}
devin apk_user_{m143}=
devin apk_{m92}
devin cog_{l52}
dify app-{h24}
discord mfa.{m18}_{m29}
discord {m24}.{m6}.{m10}-{m16}
disqus {m64}
django {l3}*{d1}#{l5}!{l7}${l5}@{l3}@{l2}&*{l5}!&%{l2}_{l6}
docker SWMKEY-{d1}-{m43}
docker SWMTKN-{d1}-{l50}-{l25}
docker {l5}.{l6}.{l2}/{l2}/
dockerhub dckr_oat_{m8}-{m8}_{m9}-{m4}
dockerhub dckr_pat_{m27}
drone {m36}.{m20}.{m43}
dropbox sl.{m29}-{m49}_{l3}-{m48}_{m4}-{l2}
dropbox {m30}-{l33}
dryrunsecurity dryrunsec_{m32}
dtrack odt_{m32}
dub dub_{m24}
duffel duffel_test_{l43}
duo {m40}
duplocloud AQAAANCMnd8BFd{m44}-{m63}-{m19}_{m14}-{m15}_{m3}_{m29}-_{m4}_{m45}
dwolla {m18}={h23}
easypost {m58}
equinix {m32}
etsy {h24}:{l10}
eventbrite {u20}
exa {l8}-{l4}-{l4}-{l4}-{h12}
exoscale EXO{l26}
facebook EAACEdEose0cBA{m169}
facebook {h32}
falai {l8}-{l4}-{l4}-{l4}-{h12}:{h32}
fastly {l32}
figma figd_{l40}
figma {d4}-{l8}-{l4}-{l4}-{l4}-{h12}
finicity {h32}
finicity {m20}
firebase AAAA{m7}:{m104}_-{m20}
firebase {m22}:{m105}_-{m20}
forestadmin {m22}
frameio fio-u-{l64}
freemius sk_{m15}#{m4}&@*{m2}${m3}
freshbooks {h64}
gcp AQ.{m50}
gcp GOOG{H57}
gemfury {m20}
gemfury {m7}-{m24}
gemstash {h32}
gitalk {h20}
gitlab GR1348941_{m19}
gitlab glagent-{m50}
gitlab glcbt-{l4}_{m20}
gitlab gldt-{m20}
gitlab glffct-{m20}
gitlab glft-{m20}
gitlab glimt-{m25}
gitlab gloas-{m64}
gitlab glpat-{m7}_-{m11}
gitlab glptt-{h40}
gitlab glrt-{l2}_{m29}.{l9}
gitlab glrt-{m20}
gitlab glsoat-{m20}
gitlab {h32}
gitter {l40}
godaddy {m35}:{m22}
google AIza{m27}_{m7}
google GOCSPX-{m13}-{m14}
google ya29.{m41}_{u3}_{m8}
google ya29.{m8}--{u2}_{m138}-{m6}
google {d12}-{l17}_{l14}.apps.{l17}.com
google {m11}-{m12}
groq gsk_{m52}
guardian {l8}-{d4}-{l4}-{d4}-{h12}
harness pat.{m22}.{h24}.{m20}
hereapi {m7}_{m35}
hetzner {m64}
hexpm {h32}
honeycomb {l5}_{m58}
hop hop_pat_{m32}
hubspot pat-{l3}-{l8}-{l4}-{l4}-{l4}-{h12}
ibm {l10}_{h32}
infomaniak {m84}
infura {h32}
instantly {m66}==
intra42 s-{l6}-{h64}
intra42 {h64}
ipstack {h32}
jumpcloud {l40}
kairos {h32}
keenio {h64}
kucoin {h24}
kucoin {l8}-{l4}-{d4}-{l4}-{h12}
langchain lsv2_pt_{h32}_{l10}
langchain lsv2_sk_{h32}_{l10}
laravel base64:{m43}=
launchdarkly ={l3}-{l35}
ldap {m2}#{m6}${l2}={u2}!
lichess lip_{m20}
lighton {m48}
linear lin_api_{m40}
linear {h32}
livekit {m44}
llamacloud llx-{m48}
lob live_{h35}
localstack LSIA{u16}
lokalise {h40}
looker {l24}
mailchimp {h32}-{l3}
mailgun key-{h32}
mailgun {h32}-{d8}-{d8}
mailgun {h72}
mandrill {m22}
mattermost {l26}
mem0 m0-{l28}
mercury mercury_production_{l3}_{m45}_yrucrem
mercury mercury_sandbox_{l3}_{m45}_yrucrem
mergify mergify_application_key_{m52}_-{m10}
midtrans Mid-server-{m16}
midtrans SB-Mid-server-{m16}
minimax MINIMAX-{u8}-{u8}-{u8}-{u8}
mintlify mint_{l24}
modal ak-{m22}
moralis {m64}
mssql {m16}
mux ={m7}+{m31}/{m34}
neo4j {m9}&{m6}
neon napi_{l64}
nessus {h64}
newrelic NRII-{h32}
newrelic NRJS-{h19}
newrelic {l4}-{h42}
nightfall NF-{m32}
notion nrt_{m47}
notion ntn_{m46}
notion secret_{m43}
novu {h32}
npm npm_{m36}
npm {l8}-{l4}-{d4}-{l4}-{h12}
nuget oy2{l43}
nuget {l46}
nvidia nvapi-{m39}_{m24}
nxcloud {m63}=
nylas nyk_{m67}
nytimes {l32}
octopusdeploy API-{u26}
okta {m42}
onelogin {l64}
onfido api_live.{m32}
openai sk-None-{m48}
openai sk-proj-{m15}-{m15}-{m16}_{m13}_{l2}_{m45}-{m11}_-{m16}_{m14}
openai sk-{m48}
openrouter sk-or-v1-{h64}
openshift sha256~{m43}
openvsx ovsxat_{l8}-{l4}-{l4}-{l4}-{h12}
opsgenie {d8}-{l4}-{l4}-{d4}-{h12}
ory ory_at_{m30}
ory ory_pat_{m30}
ory ory_st_{m30}
ovh {m32}
packagecloud {h48}
pandadoc {h40}
pangea pts_{l32}
pastebin {m32}
paypal {m80}
perplexity pplx-{m48}
pinata {h64}
pingdom {m13}_{m13}-{m9}_{m26}
pinterest pina_{u96}
pinterest pinr_{m20}.{m27}.{l6}
pipedrive {h40}
pirsch pa_{m44}
plaid access-production-{l8}-{l4}-{l4}-{l4}-{h12}
plaid access-sandbox-{l8}-{l4}-{l4}-{l4}-{h12}
plaid {l30}
plivo {m40}
polar polar_at_{m30}
portainer ptr_{m38}
posthog pha_{m43}
posthog phr_{m43}
posthog phs_{m47}
posthog phx_{m47}
prefect pnu_{h36}
proof prf_{m32}
pubnub pub-c-{d8}-{d4}-{d4}-{d4}-{d12}
pubnub sub-c-{d8}-{l4}-{d4}-{l4}-{h12}
pulumi pul-{h40}
pushbullet o.{m32}
pusher {h20}
pypi pypi-{m69}
railway {h32}
rainforestpay apikey_{h64}
ramp ramp_business_tok_{m42}
ramp ramp_sec_{m48}
readme rdme_{l70}
resend re_{m8}_{m24}
ringcentral {m22}
rollbar {l32}
rootly rootly_{h64}
runpod rpa_{m46}
saladcloud salad_cloud_user_{m49}
salesloft ak_{h64}
samsara samsara_api_{m30}
saucelabs {l8}-{l4}-{l4}-{l4}-{h12}
segment {m15}_{m27}.{m16}-{m26}
sendgrid SG.{m22}.{m5}_{l3}-{m33}
serpapi {h64}
shippo shippo_test_{h40}
shortcut sct_r_{l10}_{m142}
shutterstock v2/{m46}
sidekiq {l8}:{l8}
slack xapp-{d1}-{u11}-{d13}-{h64}
slack xoxb-{d12}-{m24}
slack xoxc-{d10}-{d13}-{d13}-{h64}
slack xoxd-{m211}
slack {l4}-{u8}-{m12}-{m32}
sonarqube {h40}
sonarqube {l3}_{h40}
sourcegraph sgp_{h16}_local_{h40}
sourcegraph sgp_{h40}
sourcegraph slk_{h64}
sparkpost {h40}
spotify {m110}
square EAAA{m60}
square sq0atp-{m22}
square sq0csp-{m22}-{m12}_{m7}
sslmate {l6}_{l26}
statuscake {l20}
statuspage {h64}
storyblok {m24}
stripe sk_live_{l32}
stripe whsec_{m32}
supabase sbp_{h40}
surge {h32}
tableau {m32}
tailscale tskey-{l6}-{m12}-{m18}
telegram {d9}:{m35}
thingsboard {l20}
tinybird p.{m159}.{m18}_{m24}
trello {l32}
triggerdev tr_dev_{m20}
triggerdev tr_pat_{m20}
truenas {d1}-{m64}
turso eyJ{m33}.{m58}.{m34}_{m8}
twilio {m32}
twitch {m30}
twitter {d19}-{m20}
twitter {m45}
twitter {m50}
twitter {m87}_{m70}
typeform tfp_{l44}_{m14}
unattend {m22}==
unkey key_{m12}
unkey unkey_{m24}
unkey {m24}
unleash user:{h56}
unleash {l7}:{l11}.{h56}
upcloud ucat_{u26}
upstage {m45}
upstash {l33}
upstash {l8}-{l4}-{l4}-{l4}-{h12}
uptimerobot {l8}-{h22}
valtown vtwn_{m32}
vapi {l8}-{l4}-{l4}-{l4}-{h12}
vercel vca_{m56}
vercel vci_{m56}
vercel vck_{m56}
vercel vcp_{m56}
vercel vcr_{m56}
vercel {m24}
vonage {m16}
voyageai al-{m43}
voyageai pa-{m12}-{m22}_{m7}
vultr {h36}
wakatime waka_{h36}
wakatime {l8}-{l4}-{d4}-{l4}-{h12}
wandb wandb_v1_{m27}_{m49}
wandb {h40}
weatherapi {l32}
webex {h64}
webflow {h32}
wepay STAGE_{h64}
wiz {m64}
workos sk_live_{m75}
wpengine {h28}
xai xai-{m80}
yahoo {h40}
yelp {l10}-{m24}-{m45}_{m8}_{m37}
zhipu {h32}.{m16}
""".strip().splitlines()
)
