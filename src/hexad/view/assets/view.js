// The page is whole without this script: it colours tokens, follows a growing run and reads keys.
"use strict";

function heat(values, quantity) {
  const known = values.filter((v) => v !== null);
  if (!known.length) return null;
  let low = known[0], high = known[0];
  for (const v of known) { if (v < low) low = v; if (v > high) high = v; }
  if (quantity === "logprob") return { from: 0, to: low < 0 ? low : -1 };
  if (quantity === "mask" || quantity === "weight") return { from: 0, to: Math.max(high, 1) };
  return { from: low - (high > low ? 0 : 1), to: high };
}

class Episode {
  constructor(section) {
    this.section = section;
    this.rows = JSON.parse(section.querySelector("script.data").textContent);
    this.choice = section.querySelector(".quantity");
    this.output = section.querySelector(".token");
    this.tokens = [];
    section.querySelectorAll(".segment").forEach((segment) => {
      const number = Number(segment.dataset.segment);
      segment.querySelectorAll(".t").forEach((element, place) => {
        this.tokens.push({ element, number, place });
      });
    });
    this.byElement = new Map(this.tokens.map((token, at) => [token.element, at]));
    this.at = -1;
    this.choice.addEventListener("change", () => this.colour());
    section.addEventListener("pointerover", (event) => this.point(event.target));
    section.addEventListener("click", (event) => this.point(event.target));
    this.colour();
  }

  value(token, quantity) { return this.rows[token.number][quantity][token.place]; }

  colour() {
    const quantity = this.choice.value;
    const scale = heat(this.tokens.map((token) => this.value(token, quantity)), quantity);
    for (const token of this.tokens) {
      const value = this.value(token, quantity);
      const share = value === null || !scale ? 0 : (value - scale.from) / (scale.to - scale.from);
      token.element.style.setProperty("--h", share.toFixed(3));
    }
    const text = scale ? `${scale.from.toPrecision(3)} to ${scale.to.toPrecision(3)}` : "no value";
    this.section.querySelector(".scale").textContent = text;
    this.section.dataset.quantity = quantity;
  }

  next() {
    const options = [...this.choice.options].filter((option) => !option.disabled);
    const now = options.findIndex((option) => option.selected);
    options[(now + 1) % options.length].selected = true;
    this.colour();
  }

  point(element) { if (this.byElement.has(element)) this.go(this.byElement.get(element), false); }

  step(by) { this.go(Math.min(Math.max(this.at + by, 0), this.tokens.length - 1), true); }

  go(at, show) {
    if (this.at >= 0) this.tokens[this.at].element.classList.remove("at");
    this.at = at;
    const token = this.tokens[at];
    token.element.classList.add("at");
    if (show) token.element.scrollIntoView({ block: "nearest" });
    const facts = Object.keys(this.rows[token.number]).map((key) => {
      const value = this.value(token, key);
      return `${key} ${value === null ? "none" : value}`;
    });
    this.output.textContent = `token ${token.place}: ${facts.join(", ")}`;
  }
}

const episodes = [...document.querySelectorAll("section.episode")].map((s) => new Episode(s));

function current() {
  const middle = window.innerHeight / 2;
  const seen = episodes.filter((e) => e.section.getBoundingClientRect().top < middle);
  return seen.length ? seen[seen.length - 1] : episodes[0];
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea")) return;
  const links = { n: "a[rel=next]", p: "a[rel=prev]" };
  if (event.key in links) document.querySelector(links[event.key])?.click();
  else if (event.key === "/") document.querySelector("input[type=search]")?.focus();
  else if (event.key === "c") current()?.next();
  else if (event.key === "ArrowRight") current()?.step(1);
  else if (event.key === "ArrowLeft") current()?.step(-1);
  else return;
  event.preventDefault();
});

async function follow(address) {
  const ask = async () => (await (await fetch(address)).json()).stamp;
  let known = await ask();
  for (;;) {
    await new Promise((done) => setTimeout(done, 2000));
    if (document.hidden) continue;
    const now = await ask();
    if (now === known) continue;
    known = now;
    const text = await (await fetch(location.href)).text();
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("main");
    document.getElementById("main").replaceWith(fresh);
  }
}

function stopped() {
  document.querySelector("footer").textContent = "The server has stopped; this page follows the run no more.";
}

if (document.body.dataset.live) follow(document.body.dataset.live).catch(stopped);
