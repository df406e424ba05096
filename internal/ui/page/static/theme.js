// Sets the theme that was selected before anything is drawn.
"use strict";
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* without storage, the theme is that of the system */ }
