// What pages do without it they do with it: this script tells times in the reader's zone, copies commands, writes the equal command as a
// form is filled in, and fetches the page anew when the server says that something has changed.
(() => {
  "use strict";
  const prefix = document.body.dataset.prefix;
  const each = (within, what, fn) => within.querySelectorAll(what).forEach(fn);

  const zoned = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const two = (n) => String(n).padStart(2, "0");
  const local = (d) => {
    const off = -d.getTimezoneOffset(), abs = Math.abs(off);
    return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())} ` +
      (off === 0 ? "UTC" : `${off < 0 ? "−" : "+"}${two(Math.floor(abs / 60))}:${two(abs % 60)}`);
  };
  const times = (within) => each(within, "time[datetime]", (t) => {
    const d = new Date(t.dateTime);
    if (isNaN(d)) return;
    if (/UTC$/.test(t.textContent)) t.textContent = t.textContent.replace(/\d{4}-.*UTC$/, local(d));
    t.title = zoned.format(d);
  });

  const copies = (within) => each(within, "button.copy", (b) => {
    if (!navigator.clipboard) return;
    b.hidden = false;
    b.addEventListener("click", async () => {
      const text = b.dataset.text || b.parentElement.querySelector("code").textContent;
      try { await navigator.clipboard.writeText(text); b.textContent = "Copied"; } catch { b.textContent = "Not copied"; }
      setTimeout(() => { b.textContent = "Copy"; }, 1500);
    });
  });

  const quoted = (s) => /^[\w./:@%+=,-]+$/.test(s) ? s : "'" + s.replaceAll("'", "'\\''") + "'";
  const commands = (within) => each(within, "form[data-cli]", (f) => {
    const out = f.querySelector("[data-cli-out]");
    if (!out || f.dataset.cli.endsWith("--body")) return;
    f.addEventListener("input", () => {
      let line = f.dataset.cli;
      const done = f.querySelector("[name=to][value=completed]:checked");
      each(f, "[data-flag]", (e) => {
        if (e.closest(".more") && !done) return;
        if (["radio", "checkbox"].includes(e.type)) { if (e.checked) line += " --" + e.dataset.flag; }
        else if (e.type === "hidden") line += " --" + e.dataset.flag;
        else if (e.value.trim() !== "") line += ` --${e.dataset.flag} ${quoted(e.value.trim())}`;
      });
      out.textContent = line;
    });
  });

  const dress = (within) => { times(within); copies(within); commands(within); };
  dress(document);

  // live
  const box = document.querySelector(".livebox");
  if (!box || !window.EventSource) return;
  const text = document.getElementById("livetext"), pause = document.getElementById("pause");
  let source = null, paused = sessionStorage.getItem("idempo-paused") === "1", timer = 0, last = "", stale = false;
  const say = (word, quiet) => { if (text.textContent !== word) text.textContent = word; box.classList.toggle("paused", quiet); };

  const refresh = async () => {
    timer = 0;
    if (document.hidden || paused) { stale = true; return; }
    stale = false;
    let page;
    try {
      const got = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin", cache: "no-store" });
      if (!got.ok || got.redirected) return;
      page = new DOMParser().parseFromString(await got.text(), "text/html");
    } catch { return; }
    each(document, "[data-live]", (old) => {
      const now = page.getElementById(old.id);
      if (!now || old.contains(document.activeElement) || old.querySelector("details[open]")) return;
      dress(now);
      if (now.innerHTML === old.innerHTML) return;
      now.classList.add("fresh");
      old.replaceWith(document.adoptNode(now));
    });
  };
  const soon = () => { if (!timer) timer = setTimeout(refresh, 300 + Math.random() * 700); };

  if (document.querySelector(".meter")) setInterval(() => { if (source) soon(); }, 15000); // replays write nothing, so the store has no news of them

  const open = () => {
    if (source || paused || document.hidden) return;
    source = new EventSource(prefix + "/events" + (last ? "?after=" + encodeURIComponent(last) : ""));
    source.onopen = () => say("Live", false);
    source.onerror = () => {
      if (source && source.readyState === EventSource.CLOSED) { source = null; say("Not live: reload to refresh", true); }
      else say("Reconnecting", true);
    };
    for (const kind of ["counts", "audit", "reset"]) source.addEventListener(kind, (e) => { if (e.lastEventId) last = e.lastEventId; soon(); });
  };
  const shut = (word) => { if (source) { source.close(); source = null; } say(word, true); };

  box.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    sessionStorage.setItem("idempo-paused", paused ? "1" : "0");
    pause.textContent = paused ? "Resume" : "Pause";
    if (paused) shut("Paused"); else { open(); soon(); }
  });
  document.addEventListener("visibilitychange", () => { if (document.hidden) shut("Asleep"); else if (!paused) { open(); if (stale) soon(); } });
  window.addEventListener("pagehide", () => shut("Asleep"));
  window.addEventListener("pageshow", (e) => { if (e.persisted) open(); });
  if (paused) { pause.textContent = "Resume"; say("Paused", true); } else open();
})();
