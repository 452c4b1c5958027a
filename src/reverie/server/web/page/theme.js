// Before anything is drawn: the colours that were chosen last time. Without a choice, the system's.
"use strict";
const chosen = localStorage.getItem("reverie.theme");
if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
