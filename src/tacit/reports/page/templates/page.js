"use strict";
// What the page can do beside being read: sort tables, enlarge figures on a phone, keep the answers of a form
// when the page is saved, print what is folded, renew itself while a run goes on.
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const ORDERS = { 1: "ascending", [-1]: "descending" };

  const value = (row, column) => {
    const cell = row.cells[column];
    const text = cell ? cell.textContent.trim() : "";
    if (["", "-", "\u2013", "\u2014"].includes(text)) return null;
    if (!cell.classList.contains("n")) return text;
    const bare = text.replace(/,(?=\d)/g, "").replace("\u2212", "-").replace(/^([-+]?)inf.*/, "$1Infinity");
    const number = parseFloat(bare);
    return Number.isNaN(number) ? null : number;
  };

  const compare = (one, other) =>
    typeof one === "number" && typeof other === "number"
      ? one - other
      : String(one).localeCompare(String(other), undefined, { numeric: true, sensitivity: "base" });

  // What has no value comes last in either order.
  const sort = (table, column, order) => {
    const rows = table.written.map((row) => ({ row, key: value(row, column) }));
    if (order) {
      rows.sort((a, b) =>
        a.key === null || b.key === null ? (a.key === null) - (b.key === null) : order * compare(a.key, b.key));
    }
    table.tBodies[0].append(...rows.map((one) => one.row));
    table.order = [column, order];
    all("thead th", table).forEach((head, place) => {
      if (order && place === column) head.setAttribute("aria-sort", ORDERS[order]);
      else head.removeAttribute("aria-sort");
    });
  };

  // Up, down, and as it was written.
  const next = (table, column) => {
    const [last, order] = table.order;
    return last !== column || order === 0 ? 1 : order === 1 ? -1 : 0;
  };

  // On a phone a figure is seen as a whole, and read when it is as wide as on a desk.
  const enlarge = (figure) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "enlarge";
    const show = (large) => {
      figure.classList.toggle("large", large);
      button.textContent = large ? "Show the whole figure" : "Enlarge the figure";
      button.setAttribute("aria-pressed", large);
    };
    show(false);
    button.addEventListener("click", () => show(!figure.classList.contains("large")));
    figure.querySelector("figcaption").before(button);
  };

  const equip = () => {
    all("figure:not(.film)").forEach(enlarge);
    for (const table of all("table[data-sortable]")) {
      table.written = [...table.tBodies[0].rows];
      table.order = [0, 0];
      all("thead th", table).forEach((head, column) => {
        if (!head.textContent.trim()) return;
        const button = document.createElement("button");
        button.type = "button";
        button.append(...head.childNodes);
        button.addEventListener("click", () => sort(table, column, next(table, column)));
        head.append(button);
      });
    }
  };

  // A saved page holds the text of a field, not what was typed; a field is as high as its answer.
  const fit = (field) => {
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight + 2}px`;
  };
  all("textarea").forEach((field) => {
    fit(field);
    field.addEventListener("input", () => { field.textContent = field.value; fit(field); });
  });
  addEventListener("resize", () => all("textarea").forEach(fit));

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = all("details:not([open])");
    closed.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((one) => { one.open = false; }));

  // The same things of two states of a page, by what they are called.
  const named = (selector, title) => {
    const seen = new Map();
    return new Map(all(selector).map((one) => {
      const name = title(one);
      seen.set(name, (seen.get(name) || 0) + 1);
      return [`${name} ${seen.get(name)}`, one];
    }));
  };
  const folds = () => named("details", (one) => one.firstElementChild.textContent);
  const tables = () => named("table[data-sortable]", (one) => one.caption.textContent);
  const boxes = () => named(".scroll, pre, nav", (one) => one.tagName + (one.getAttribute("aria-label") || ""));
  const stops = () => named("a, button, summary, [tabindex]", (one) => one.tagName + one.textContent.slice(0, 80));

  const remembered = () => {
    const open = new Map([...folds()].map(([name, one]) => [name, one.open]));
    const orders = new Map([...tables()].map(([name, one]) => [name, one.order]));
    const places = new Map([...boxes()].map(([name, one]) => [name, [one.scrollLeft, one.scrollTop]]));
    const focus = [...stops()].find(([, one]) => one === document.activeElement);
    const [x, y] = [scrollX, scrollY];
    return () => {
      folds().forEach((one, name) => { if (open.has(name)) one.open = open.get(name); });
      tables().forEach((one, name) => { if (orders.has(name)) sort(one, ...orders.get(name)); });
      boxes().forEach((one, name) => { if (places.has(name)) [one.scrollLeft, one.scrollTop] = places.get(name); });
      const stop = focus && stops().get(focus[0]);
      if (stop) stop.focus({ preventScroll: true });
      scrollTo({ left: x, top: y, behavior: "instant" });
    };
  };

  const renew = (fresh) => {
    const restore = remembered();
    document.title = fresh.title;
    for (const tag of ["nav", "main"]) {
      const [old, now] = [document.querySelector(tag), fresh.querySelector(tag)];
      if (old && now) old.replaceWith(document.adoptNode(now));
      else if (now) document.querySelector("main").before(document.adoptNode(now));
    }
    equip();
    restore();
  };

  const watch = (seconds) => {
    const state = document.getElementById("state");
    const going = state.textContent;
    let [tag, last, gone] = [null, new Date(), false];
    const say = (words, lost) => {
      state.textContent = words;
      state.classList.toggle("gone", lost);
      gone = lost;
    };
    const ask = async () => {
      // The page is hidden, or the reader is selecting text that a refresh would replace.
      if (document.hidden || !getSelection().isCollapsed) return true;
      const headers = tag ? { "If-None-Match": tag } : {};
      const answer = await fetch(location.href.split("#")[0], { cache: "no-store", headers });
      if (answer.status !== 304) {
        if (!answer.ok) throw new Error(answer.statusText);
        const found = answer.headers.get("ETag");
        if (!found || found !== tag) {
          const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
          renew(fresh);
          tag = found;
          if (!fresh.documentElement.dataset.refresh) {
            say("The run is over; this is how it ended.", false);
            return false;
          }
        }
      }
      last = new Date();
      if (gone) say(going, false);
      return true;
    };
    const again = async () => {
      let more = true;
      try {
        more = await ask();
      } catch {
        if (!gone) say(`The run no longer answers: this is its last state, as of ${last.toLocaleTimeString()}.`, true);
      }
      if (more) setTimeout(again, 1000 * seconds * (gone ? 5 : 1));
    };
    setTimeout(again, 1000 * seconds);
  };

  equip();
  const seconds = parseFloat(document.documentElement.dataset.refresh);
  if (seconds > 0) watch(seconds);
})();
