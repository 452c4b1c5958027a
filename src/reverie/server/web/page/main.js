// The page from its first moment: sign in, then show what the address says.

import { keptToken, me, redeem, signIn, signOut } from "./api.js";
import { fill } from "./dom.js";
import { listenForKeys } from "./keys.js";
import { Shell } from "./shell.js";
import { signInForm } from "./signin.js";
import { clear, failed } from "./toast.js";

const UNKNOWN = "The server does not know this token any more.";
const page = document.getElementById("page");
let shown = null;

async function begin() {
  const code = /^#code=([^&]+)/.exec(location.hash);
  // A code works once, but an address is kept in the history: it goes before anything else happens.
  if (code) history.replaceState(null, "", "#/memories");
  try {
    if (code) await signIn(await redeem(decodeURIComponent(code[1])));
    else if (keptToken()) await signIn(keptToken());
    else return askForToken();
    await open();
  } catch (error) {
    askForToken(
      code
        ? "This link has been used already, or the server was started again. Open the one it prints now, or paste a token."
        : error.status === 401
          ? UNKNOWN
          : error.message,
    );
  }
}

function askForToken(why = "") {
  shown?.close();
  shown = null;
  clear();
  document.title = "Reverie";
  fill(
    page,
    signInForm(why, async (token, keep) => {
      await signIn(token, keep);
      await open();
    }),
  );
}

async function open() {
  const shell = new Shell();
  await shell.open(page, leave);
  shown = shell;
  await shown.show();
}

function leave() {
  signOut();
  askForToken();
}

window.addEventListener("signed-out", () => {
  if (!me.token) return;
  signOut();
  askForToken(UNKNOWN);
});
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#code=")) begin();
  else shown?.show();
});
window.addEventListener("unhandledrejection", (event) => failed(event.reason));
listenForKeys(() => shown);
begin();
