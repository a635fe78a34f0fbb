// The list of users, sorted and filtered. The first hundred stand in the page already; the rest are data files that are
// loaded once a reader sorts, filters or turns a page. Every text goes into the page as text (textContent), never as
// markup. No request leaves the folder: pages opened from a disk may not fetch, but may load scripts.
"use strict";
(() => {
  const SHOWN = 100;
  const table = document.querySelector("#list table");
  const columns = [...table.tHead.rows[0].cells].map((cell, at) => ({
    cell, at: at + 1, key: cell.dataset.key, kind: cell.dataset.kind, title: cell.textContent,
  }));
  const total = Number(table.dataset.total);
  const told = document.getElementById("told");
  const body = table.tBodies[0];
  const rows = [];
  const view = { sort: "", down: true, find: "", choices: {}, page: 0 };
  let found = null;
  let loading = null;

  // -- data
  window.personalink = (chunk) => { for (const row of chunk) rows.push(row); };
  const script = (number) => new Promise((done, failed) => {
    const tag = document.createElement("script");
    tag.src = `data/users-${number}.js`;
    tag.onload = done;
    tag.onerror = () => failed(new Error(`data/users-${number}.js is missing`));
    document.head.append(tag);
  });
  const load = () => {
    loading ??= (async () => {
      for (let number = 0; number < Number(table.dataset.chunks); number++) await script(number);
    })();
    return loading;
  };

  // -- values
  const number = (value, kind) => {
    if (value === null || value === "") return null;
    if (Array.isArray(value)) return kind === "change" ? value[1] : value[0];
    return value;
  };
  const grouped = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");
  const written = (value, kind) => {
    if (value === null || value === "") return "–";
    if (Array.isArray(value)) return `${grouped(value[0])} ${kind === "of" ? "of" : "→"} ${grouped(value[1])}`;
    if (typeof value === "string") return value;
    if (kind === "count") return grouped(value);
    return ((kind === "gain" && value > 0 ? "+" : "") + value.toFixed(3)).replace("-", "−").replace(/^[+−](?=0\.000$)/, "");
  };

  // -- filters: words are looked for in the user's id, `gain>0` compares a column
  const tests = (find) => find.split(/\s+/).filter(Boolean).map((part) => {
    const asked = /^([a-z_]+)(<=|>=|<|>|=)([-−]?[\d.]+)$/i.exec(part);
    const column = asked && columns.find((one) => one.key === asked[1].toLowerCase());
    if (!column) return (row) => String(row[1]).toLowerCase().includes(part.toLowerCase());
    const wanted = Number(asked[3].replace("−", "-"));
    const holds = {
      "<": (a) => a < wanted, ">": (a) => a > wanted, "=": (a) => a === wanted,
      "<=": (a) => a <= wanted, ">=": (a) => a >= wanted,
    }[asked[2]];
    return (row) => {
      const value = number(row[column.at], column.kind);
      return typeof value === "number" && holds(value);
    };
  });
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const natural = new Intl.Collator("en", { numeric: true }).compare;
  const select = () => {
    const all = tests(view.find);
    const chosen = Object.entries(view.choices).filter(([, value]) => value !== "");
    found = rows.filter((row) => all.every((test) => test(row))
      && chosen.every(([at, value]) => (row[at] === "" ? "–" : row[at]) === value));
    const column = columns.find((one) => one.key === view.sort);
    if (!column) return;
    const sign = view.down ? -1 : 1;
    const compare = column.kind === "user" || column.kind === "choice" ? natural : order;
    const keyed = found.map((row) => [number(row[column.at], column.kind), row]);
    keyed.sort(([a], [b]) => (a === null ? (b === null ? 0 : 1) : b === null ? -1 : sign * compare(a, b)));
    found = keyed.map(([, row]) => row);
  };

  // -- the page
  const make = (name, content, attributes = {}) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...[content].flat());
    return element;
  };
  const line = (row) => make("tr", columns.map((column) => {
    const value = row[column.at];
    if (column.kind === "user") {
      return make("th", make("a", make("bdi", String(value)), { href: row[0] }), { scope: "row" });
    }
    return make("td", written(value, column.kind), column.kind === "choice" ? {} : { class: "n" });
  }));
  const show = () => {
    select();
    const pages = Math.max(1, Math.ceil(found.length / SHOWN));
    view.page = Math.min(view.page, pages - 1);
    body.replaceChildren(...found.slice(view.page * SHOWN, (view.page + 1) * SHOWN).map(line));
    told.textContent = found.length === total
      ? `${grouped(total)} users.` : `${grouped(found.length)} of ${grouped(total)} users.`;
    for (const column of columns) {
      if (column.key === view.sort) column.cell.setAttribute("aria-sort", view.down ? "descending" : "ascending");
      else column.cell.removeAttribute("aria-sort");
    }
    turn(pages);
  };
  const update = async () => {
    told.textContent = "Loading…";
    try {
      await load();
      menus();
      show();
    } catch (error) {
      told.textContent = `The list cannot be sorted here: ${error.message}.`;
    }
  };
  const turn = (pages) => {
    const old = document.getElementById("pager");
    const held = old?.contains(document.activeElement) ? document.activeElement.dataset.go : null;
    old?.remove();
    if (pages === 1) return;
    const go = (step, words) => {
      const button = make("button", words, { type: "button", "data-go": step });
      button.disabled = step === -1 ? view.page === 0 : view.page === pages - 1;
      button.onclick = () => { view.page += step; update(); };
      return button;
    };
    const items = [go(-1, "← Back"), `Page ${grouped(view.page + 1)} of ${grouped(pages)}`, go(1, "On →")];
    const nav = make("nav", make("ul", items.map((item) => make("li", item))),
      { class: "pager", id: "pager", "aria-label": "Pages of the list" });
    document.getElementById("list").after(nav);
    if (held) {
      const same = nav.querySelector(`[data-go="${held}"]`);
      (same.disabled ? nav.querySelector("button:not(:disabled)") : same).focus();
    }
  };

  // -- what is added to the static page
  for (const column of columns) {
    const button = make("button", column.title, { type: "button" });
    button.onclick = () => {
      view.down = view.sort === column.key ? !view.down : column.kind !== "user" && column.kind !== "choice";
      view.sort = column.key;
      view.page = 0;
      update();
    };
    column.cell.replaceChildren(button);
  }
  const tools = document.getElementById("tools");
  tools.className = "tools";
  const find = make("input", [], { type: "search", autocomplete: "off", spellcheck: "false", "aria-describedby": "how" });
  let waiting = 0;
  find.oninput = () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { view.find = find.value; view.page = 0; update(); }, 80);
  };
  find.onfocus = load;
  tools.append(make("label", ["Find", find], { class: "find" }));
  const choices = columns.filter((column) => column.kind === "choice").map((column) => {
    const menu = make("select", make("option", "any", { value: "" }));
    menu.onchange = () => { view.choices[column.at] = menu.value; view.page = 0; update(); };
    menu.onfocus = () => load().then(menus, () => {});
    tools.append(make("label", [column.title, menu]));
    return { column, menu };
  });
  let listed = false;
  const menus = () => {
    if (listed) return;
    listed = true;
    for (const { column, menu } of choices) {
      const words = new Set(rows.map((row) => row[column.at] || "–"));
      menu.append(...[...words].sort(natural).map((word) => make("option", word, { value: word })));
    }
  };
  const keys = columns.filter((column) => column.kind !== "user" && column.kind !== "choice").map((column) => column.key);
  const example = keys.includes("gain") ? "gain>0 history>=50" : `${keys[0]}>50`;
  tools.append(make("p", `Part of a user’s id, or a comparison such as ${example} (${keys.join(", ")}).`,
    { class: "quiet", id: "how" }));
  if (total > SHOWN) requestAnimationFrame(() => setTimeout(() => load().then(menus, () => {})));
  else load().then(menus, () => {});
})();
