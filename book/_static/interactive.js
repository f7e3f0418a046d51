/* The figures that a reader can play with: <try-attention-operator>, <try-masking>, …
   attncourse/interactive.py writes each as tables of numbers, with what it was given in data-given.
   Here the controls are added, and the numbers rewritten when a control is moved. */
"use strict";
{
  // The operator. A matrix is an array of rows.
  const dot = (a, b) => a.reduce((sum, number, i) => sum + number * b[i], 0);
  const sum = (row) => row.reduce((a, b) => a + b, 0);
  const transposed = (matrix) => matrix[0].map((_, j) => matrix.map((row) => row[j]));
  const product = (a, b) => a.map((row) => transposed(b).map((column) => dot(row, column)));
  const scoresOf = (query, key) => query.map((q) => key.map((k) => dot(q, k) / Math.sqrt(q.length)));

  // Keys that may not be seen get exactly 0. If there are no others, all get 0.
  const softargmax = (scores, seen = scores.map(() => true)) => {
    const largest = Math.max(...scores.filter((_, k) => seen[k]));
    const exponentials = scores.map((score, k) => (seen[k] ? Math.exp(score - largest) : 0));
    const total = sum(exponentials) || 1;
    return exponentials.map((exponential) => exponential / total);
  };

  const attend = (query, key, value, mask = []) => {
    const weights = scoresOf(query, key).map((scores, q) => softargmax(scores, mask[q]));
    return { weights, output: product(weights, value) };
  };

  // Text and elements.
  const sign = (text) => String(text).replaceAll("-", "−");
  const two = (number) => sign((Number(number.toFixed(2)) || 0).toFixed(2)); // never −0.00
  const list = (row) => row.map(sign).join(", ");
  const twos = (row) => row.map(two).join(", ");
  const infinite = (number) => String(number).replace("Infinity", "∞");
  const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const name in attributes) element.setAttribute(name, attributes[name]);
    element.append(...children);
    return element;
  };

  class Figure extends HTMLElement {
    connectedCallback() {
      this.given = JSON.parse(this.dataset.given);
      this.shown = []; // functions that write the value of a slider beside it
      this.controls = make("div", { class: "try-controls" });
      this.status = make("p", { role: "status" });
      this.prepend(this.controls, this.status);
      this.build();
      this.addEventListener("input", () => this.update());
      this.update();
    }

    update() {
      for (const show of this.shown) show();
      this.draw();
    }

    group(name, ...children) {
      this.controls.append(make("fieldset", {}, make("legend", {}, name), ...children));
    }

    slider(name, min, max, value, words = sign) {
      const input = make("input", { type: "range", min, max, value });
      const shown = make("span", { class: "try-value", "aria-hidden": "true" });
      this.shown.push(() => {
        shown.textContent = words(input.valueAsNumber);
        input.setAttribute("aria-valuetext", shown.textContent);
      });
      return [input, make("label", { class: "try-slider" }, make("span", {}, name), input, shown)];
    }

    tick(type, name, attributes = {}) {
      const input = make("input", { type, ...attributes });
      return [input, make("label", { class: "try-tick" }, input, name)];
    }

    button(name, press) {
      const button = make("button", { type: "button" }, name);
      button.addEventListener("click", () => {
        press();
        this.update();
      });
      return button;
    }

    table(name) {
      return this.querySelector(`.try-${name}`);
    }

    row(name, number) {
      return this.table(name).tBodies[0].rows[number].cells;
    }
  }

  // What a cell says; how dark it is, from 0 to 1; whether it has a star.
  const write = (cell, text, share, starred = false) => {
    cell.textContent = text;
    cell.classList.toggle("try-starred", starred);
    if (share === undefined) cell.removeAttribute("style");
    else cell.style.setProperty("--share", share.toFixed(3));
  };

  const writeWeight = (cell, weight, seen, starred) => {
    write(cell, seen ? two(weight) : "0", seen ? weight : undefined, starred);
    cell.classList.toggle("try-hidden", !seen);
  };

  class Intro extends Figure {
    build() {
      const { factors, factor, asked } = this.given;
      const [hour, hour_label] = this.slider("hour", 0, 24, asked);
      const [sharp, sharp_label] =
        this.slider("factor", 0, factors.length - 1, factors.indexOf(factor), (i) => String(factors[i]));
      [this.hour, this.factor] = [hour, sharp];
      this.group("Ask", hour_label, sharp_label);
    }

    // The similarity of two hours, as points on a clock of 24 hours.
    similarity(a, b) {
      return Math.cos(((a - b) * 2 * Math.PI) / 24);
    }

    weights(hour, factor) {
      return softargmax(this.given.hours.map((stored) => factor * this.similarity(hour, stored)));
    }

    draw() {
      const { hours, degrees, factors } = this.given;
      const [asked, factor] = [this.hour.valueAsNumber, factors[this.factor.value]];
      const weights = this.weights(asked, factor);
      const answer = dot(weights, degrees);

      const table = this.table("bars");
      table.caption.textContent = `Hour ${asked}, factor ${factor}`;
      hours.forEach((stored, k) => {
        write(this.row("bars", k)[1], two(this.similarity(asked, stored)));
        write(this.row("bars", k)[2], two(weights[k]), weights[k]);
      });
      const foot = table.tFoot.rows[0].cells;
      write(foot[2], two(sum(weights)));
      write(foot[3], two(answer));

      const [lowest, highest] = [Math.min(...degrees), Math.max(...degrees)];
      const place = (hour, degree) => [30 + 11 * hour, 130 - (110 * (degree - lowest)) / (highest - lowest)];
      const moments = Array.from({ length: 97 }, (_, i) => i / 4);
      this.querySelector(".try-curve").setAttribute("points", moments.map((hour) =>
        place(hour, dot(this.weights(hour, factor), degrees)).map((at) => at.toFixed(1)).join()).join(" "));
      const ring = this.querySelector(".try-answer");
      place(asked, answer).forEach((at, i) => ring.setAttribute(["cx", "cy"][i], at.toFixed(1)));

      const top = Math.max(...weights);
      const first = hours.filter((_, k) => weights[k] > top - 1e-9);
      this.status.textContent = `The answer for ${asked} hours is ${two(answer)} degrees. ` +
        `Largest weight: ${two(top)}, for ${first.length === hours.length ? "every hour" : first.join(" and ")}.`;
    }
  }

  class AttentionOperator extends Figure {
    static factors = [0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, Infinity];

    build() {
      const { words, features, query } = this.given;
      const sliders = features.map((name, d) => this.slider(name, -8, 8, query[0][d]));
      this.query = sliders.map(([input]) => input);
      const choice = make("select", {}, ...words.map((word, q) => make("option", {}, `${q + 1} ${word}`)));
      choice.addEventListener("input", () =>
        this.query.forEach((input, d) => (input.value = query[choice.selectedIndex][d])));
      for (const input of this.query) input.addEventListener("input", () => (choice.selectedIndex = -1));
      const at = AttentionOperator.factors;
      const [factor, label] = this.slider("factor", 0, at.length - 1, at.indexOf(1), (i) => infinite(at[i]));
      this.factor = factor;
      this.group("Query, and a factor on it",
        make("label", { class: "try-slider" }, make("span", {}, "as asked by"), choice),
        label, ...sliders.map(([, label]) => label));
    }

    draw() {
      const { words, key, value, value_features } = this.given;
      const query = this.query.map((input) => input.valueAsNumber);
      const factor = AttentionOperator.factors[this.factor.value];
      const [scores] = scoresOf([query], key);
      const largest = Math.max(...scores);
      const weights = softargmax(scores.map((score) =>
        factor < Infinity ? factor * score : score === largest ? 0 : -Infinity));
      const [output] = product([weights], value);

      this.table("bars").caption.textContent =
        `Query (${list(query)}), factor ${infinite(factor)}`;
      words.forEach((_, k) => {
        write(this.row("bars", k)[2], two(scores[k]));
        write(this.row("bars", k)[3], two(weights[k]), weights[k]);
      });
      const foot = this.table("bars").tFoot.rows[0].cells;
      write(foot[3], two(sum(weights)));
      write(foot[4], twos(output));

      // The output is an average of the values, so the cross is the same average of the dots.
      const cross = [0, 0];
      for (const dot of this.querySelectorAll(".try-dot")) {
        const share = sum(JSON.parse(dot.dataset.keys).map((k) => weights[k]));
        dot.setAttribute("r", 3 + 14 * Math.sqrt(share));
        ["cx", "cy"].forEach((name, d) => (cross[d] += share * dot.getAttribute(name)));
      }
      this.querySelector(".try-cross").setAttribute("transform", `translate(${cross})`);

      const top = Math.max(...weights);
      const first = words.filter((_, k) => weights[k] > top - 1e-9);
      const which = first.length === words.length ? "all words" : first.join(", ");
      const limit = { 0: "The uniform limit. ", Infinity: "The sharp limit. " }[factor] ?? "";
      this.status.textContent = `${limit}Largest weight: ${two(top)}, for ${which}. ` +
        `Output: ${value_features.map((name, d) => `${name} ${two(output[d])}`).join(", ")}.`;
    }
  }

  class Masking extends Figure {
    build() {
      const size = this.given.words.length;
      const causal = this.tick("checkbox", "causal", { checked: "" });
      const local = this.tick("checkbox", "local");
      const radius = this.slider("radius", 0, size - 1, 1);
      const padding = this.tick("checkbox", "padding");
      const length = this.slider("true words", 0, size, size - 2);
      [this.causal, this.local, this.radius, this.padding, this.length] =
        [causal, local, radius, padding, length].map(([input]) => input);
      this.group("Masks, joined by and",
        ...[causal, local, radius, padding, length].map(([, label]) => label));
    }

    // Self-attention on an input. Which inputs change an output, is found by changing them.
    attend(x, mask) {
      const { W_Q, W_K, W_V } = this.given;
      return attend(product(x, W_Q), product(x, W_K), product(x, W_V), mask);
    }

    draw() {
      const { words, x } = this.given;
      const [radius, length] = [this.radius.valueAsNumber, this.length.valueAsNumber];
      this.radius.disabled = !this.local.checked;
      this.length.disabled = !this.padding.checked;
      const conditions = [
        [this.causal.checked, "causal", (q, k) => k <= q],
        [this.local.checked, `local, radius ${radius}`, (q, k) => Math.abs(q - k) <= radius],
        [this.padding.checked, `padding, ${count(length, "true word")}`, (q, k) => k < length],
      ].filter(([on]) => on);
      const mask = words.map((_, q) => words.map((_, k) => conditions.every(([, , sees]) => sees(q, k))));
      const name = conditions.map(([, name]) => name).join(" and ") || "full";

      const { weights, output } = this.attend(x, mask);
      const changed = words.map((_, k) => {
        const moved = x.map((row, j) => row.map((number, d) => (j === k ? number + 0.1 * (d + 1) : number)));
        const after = this.attend(moved, mask).output;
        return words.map((_, q) => after[q].some((number, d) => number !== output[q][d]));
      });

      this.table("weights").caption.textContent = `Weights. Mask: ${name}`;
      let through = 0;
      words.forEach((_, q) => {
        const cells = this.row("weights", q);
        words.forEach((_, k) => {
          writeWeight(cells[k + 1], weights[q][k], mask[q][k]);
          const can = changed[k][q];
          const surprise = can && !mask[q][k];
          through += surprise;
          write(this.row("influence", q)[k + 1], can ? "yes" : "–", can ? 1 : undefined, surprise);
        });
        write(cells[words.length + 1], two(sum(weights[q])));
      });
      const empty = words.filter((_, q) => !mask[q].includes(true));
      this.status.textContent =
        `Mask: ${name}. ${sum(mask.flat().map(Number))} of ${words.length ** 2} weights are allowed.` +
        (empty.length ? ` Empty rows: ${empty.join(", ")}.` : "") +
        (through ? ` ${count(through, "starred pair")}: the mask hides the key, but the input makes the query, too.` : "");
    }
  }

  class Multihead extends Figure {
    build() {
      this.scores = this.given.scores.map((scores, h) => {
        const [subject, subject_label] = this.slider("subject", -4, 4, scores[0]);
        const [object, object_label] = this.slider("object", -4, 4, scores[2]);
        this.group(`Head ${h}: its score for the …`, subject_label, object_label);
        return () => [subject.valueAsNumber, 0, object.valueAsNumber];
      });
      const [added, label] = this.tick("checkbox", "add the heads up");
      this.added = added;
      this.group("Instead of side by side", label);
    }

    draw() {
      const { sentences, kind } = this.given;
      const weights = this.scores.map((read) => softargmax(read()));
      weights.forEach((row, h) => row.forEach((weight, k) =>
        write(this.row("heads", h)[k + 1], two(weight), weight)));

      // Added up, the heads' outputs stand in the columns of the first head.
      const outputs = kind.map((values) => {
        const heads = product(weights, values);
        return this.added.checked
          ? heads[0].map((number, d) => number + heads[1][d]).concat(heads[1].map(() => undefined))
          : heads.flat();
      });
      this.table("outputs").caption.textContent =
        this.added.checked ? "Outputs, added up (below head 0)" : "Outputs, side by side";
      outputs.forEach((output, s) => output.forEach((number, i) =>
        write(this.row("outputs", s)[i + 1], number === undefined ? "" : two(number))));
      const differences = outputs[0].map((number, i) => Math.abs((number ?? 0) - (outputs[1][i] ?? 0)));
      const largest = Math.max(...differences);
      this.status.textContent = largest < 0.005
        ? "The two sentences give the same output: who did what is lost."
        : `The outputs of the two sentences differ, by ${two(largest)} at most: ` +
          `“${sentences[0].join(" ")}” can be told from “${sentences[1].join(" ")}”.`;
    }
  }

  let radios = 0; // radio buttons of one figure share a name

  class Permutation extends Figure {
    static moves = {
      "queries, keys and values": "QKV",
      "queries": "Q",
      "keys with their values": "KV",
      "keys alone": "K",
    };

    build() {
      const { words, order } = this.given;
      this.list = make("ol", { class: "try-order" });
      this.items = words.map((word, i) => this.item(word, i));
      this.reorder(order);
      this.group("New order", this.list,
        this.button("Original order", () => this.reorder(words.map((_, i) => i))));
      const name = `try-moves-${radios++}`;
      const moves = Object.entries(Permutation.moves).map(([text, value], i) =>
        this.tick("radio", text, { name, value, ...(i ? {} : { checked: "" }) }));
      this.moves = moves.map(([input]) => input);
      this.group("What is put in this order", ...moves.map(([, label]) => label));
      const causal = this.tick("checkbox", "causal mask");
      const along = this.tick("checkbox", "the mask moves along");
      [this.causal, this.along] = [causal[0], along[0]];
      this.group("Mask", causal[1], along[1]);
    }

    item(word, i) {
      const grip = make("span", { class: "try-grip" }, word);
      const item = make("li", {}, grip);
      item.value = i; // the number that the list shows: where the word comes from
      for (const [sign, name, step] of [["↑", "up", -1], ["↓", "down", 1]]) {
        const button = this.button(sign, () => this.step(item, step));
        button.setAttribute("aria-label", `Move ${word} ${name}`);
        item.append(button);
      }
      grip.addEventListener("pointerdown", (event) => {
        grip.setPointerCapture(event.pointerId);
        event.preventDefault(); // no selection of text
      });
      grip.addEventListener("pointermove", (event) => {
        if (!grip.hasPointerCapture(event.pointerId)) return;
        const { top, bottom } = item.getBoundingClientRect();
        const step = event.clientY < top ? -1 : event.clientY > bottom ? 1 : 0;
        if (step && this.step(item, step)) this.update();
      });
      return item;
    }

    // The neighbour changes places: the item itself keeps the focus, or the pointer that holds it.
    step(item, step) {
      const neighbour = step < 0 ? item.previousElementSibling : item.nextElementSibling;
      if (neighbour) step < 0 ? item.after(neighbour) : item.before(neighbour);
      return neighbour;
    }

    reorder(order) {
      this.list.append(...order.map((i) => this.items[i]));
    }

    draw() {
      const { words, query, key, value } = this.given;
      const numbers = words.map((_, i) => i);
      const order = [...this.list.children].map((item) => item.value);
      const moved = this.moves.find((input) => input.checked).value;
      const [ofQuery, ofKey, ofValue] = ["Q", "K", "V"].map((name) => (moved.includes(name) ? order : numbers));
      this.along.disabled = !this.causal.checked;
      const causal = (rows, columns) => rows.map((q) => columns.map((k) => k <= q || !this.causal.checked));
      const old = causal(numbers, numbers);
      const mask = this.along.checked ? causal(ofQuery, ofKey) : old;
      const before = attend(query, key, value, old);
      const after = attend(ofQuery.map((i) => query[i]), ofKey.map((i) => key[i]), ofValue.map((i) => value[i]), mask);

      const fill = (name, title, queries, keys, { weights, output }, mask, isNew = () => false) => {
        const table = this.table(name);
        table.caption.textContent = `${title}: ${queries.map((i) => words[i]).join(", ")}`;
        keys.forEach((i, k) => (table.tHead.rows[0].cells[k + 1].textContent = words[i]));
        let news = 0;
        queries.forEach((i, q) => {
          const cells = this.row(name, q);
          cells[0].textContent = words[i];
          keys.forEach((_, k) => writeWeight(cells[k + 1], weights[q][k], mask[q][k], isNew(q, k)));
          write(cells[words.length + 1], twos(output[q]), undefined, isNew(q));
          news += isNew(q);
        });
        return news;
      };
      const far = (a, b) => Math.abs(a - b) > 1e-9;
      const isNew = (q, k) => k === undefined
        ? after.output[q].some((number, d) => far(number, before.output[ofQuery[q]][d]))
        : far(after.weights[q][k], before.weights[ofQuery[q]][ofKey[k]]);
      fill("before", "Before", numbers, numbers, before, old);
      const news = fill("after", "After", ofQuery, ofKey, after, mask, isNew);
      const weights = sum(numbers.flatMap((q) => numbers.map((k) => Number(isNew(q, k)))));
      const where = moved.includes("Q") ? "have moved with their words" : "are what and where they were";
      this.status.textContent = `Order: ${order.map((i) => words[i]).join(", ")}. ` +
        (weights ? `${count(weights, "new weight")}. ` : "No new weight. ") +
        (news ? `${count(news, "new output")}.` : `All outputs ${where}.`);
    }
  }

  class Positional extends Figure {
    build() {
      const last = this.given.binary.length - 1;
      const [position, position_label] = this.slider("position t", 0, last - 8, this.given.position);
      const [offset, offset_label] = this.slider("offset k", 0, 8, this.given.offset);
      [this.position, this.offset] = [position, offset];
      this.group("Two positions, t and t + k", position_label,
        make("div", { class: "try-steps" },
          this.button("one back", () => position.stepDown()), this.button("one on", () => position.stepUp())),
        offset_label);
    }

    draw() {
      const { binary, sinusoidal } = this.given;
      const t = this.position.valueAsNumber;
      const s = t + this.offset.valueAsNumber;
      for (const name of ["binary", "sinusoidal"]) {
        [...this.table(name).tBodies[0].rows].forEach((row, i) => (row.hidden = i !== t && i !== s));
        this.given[name][0].forEach((_, i) => {
          for (const place of [t, s]) this.row(name, place)[i + 1].classList.remove("try-starred");
          if (name === "binary")
            this.row(name, s)[i + 1].classList.toggle("try-starred", binary[t][i] !== binary[s][i]);
        });
      }
      this.querySelectorAll("g").forEach((dial, i) => {
        for (const [kind, place] of [["now", t], ["then", s]]) {
          const [sine, cosine] = sinusoidal[place].slice(2 * i, 2 * i + 2);
          dial.querySelector(`.try-${kind}`).setAttribute("d", `M0 0L${32 * cosine} ${-32 * sine}`);
        }
      });
      const differ = binary[t].filter((bit, b) => bit !== binary[s][b]).length;
      const ones = binary[t].map((bit, b) => bit * 2 ** b).filter(Boolean).join(" + ") || "0";
      this.status.textContent = `t = ${t}, in bits ${ones}. t + k = ${s}: ` +
        `${count(differ, "bit")} differ${differ === 1 ? "s" : ""}. ` +
        `Dot product of the two sinusoidal rows: ${two(dot(sinusoidal[t], sinusoidal[s]))}.`;
    }
  }

  class Scaling extends Figure {
    build() {
      const { words, newest, size } = this.given;
      const [word, word_label] = this.slider("words", 1, words.length, newest + 1);
      const [chunk, chunk_label] = this.slider("chunk", 1, words.length, size);
      [this.word, this.chunk] = [word, chunk];
      this.group("Words so far, and keys in a chunk", word_label, chunk_label);
    }

    draw() {
      const { words, query, key, value } = this.given;
      const [newest, size] = [this.word.valueAsNumber - 1, this.chunk.valueAsNumber];
      const [scores] = scoresOf([query[newest]], key.slice(0, newest + 1));

      // What is kept between two chunks: the largest score, the sum, and the weighted values.
      let [m, l, o] = [-Infinity, 0, 0];
      const rows = [];
      for (let start = 0; start <= newest; start += size) {
        const now = scores.slice(start, start + size);
        const largest = Math.max(m, ...now);
        const terms = now.map((score) => Math.exp(score - largest));
        const factor = Math.exp(m - largest);
        l = factor * l + sum(terms);
        o = factor * o + sum(terms.map((term, j) => term * value[start + j][0]));
        m = largest;
        const names = words.slice(start, Math.min(start + size, newest + 1)).join(", ");
        rows.push(make("tr", {}, make("th", { scope: "row" }, names),
          ...[m, l, o, o / l].map((number) => make("td", {}, two(number)))));
      }
      const table = this.table("chunks");
      table.tBodies[0].replaceChildren(...rows);
      table.caption.textContent = `${words[newest]} asks, ${count(size, "key")} at a time`;

      this.querySelectorAll("rect").forEach((square, i) => {
        const [q, k] = [Math.floor(i / words.length), i % words.length];
        const is = k > Math.min(q, newest) || (newest < q && q < words.length) ? "empty"
          : q < newest ? "before"
          : q === newest ? `chunk${Math.floor(k / size) % 2}` : "cached";
        square.setAttribute("class", `try-${is}`);
      });
      const n = newest + 1;
      this.status.textContent = `${count(n, "key")} and ${n === 1 ? "value" : "values"} in the cache, ` +
        `at most ${count(Math.min(size, n), "score")} at a time. ` +
        `Scores since the first word: ${(n * (n + 1)) / 2}; without a cache ${(n * (n + 1) * (2 * n + 1)) / 6}.`;
    }
  }

  class Transformer extends Figure {
    build() {
      const { blocks, masks } = this.given;
      const choices = blocks.map((chosen, b) => {
        const select = make("select", {}, ...Object.keys(masks).map((name) => make("option", {}, name)));
        select.value = chosen;
        return [select, make("label", { class: "try-slider" }, make("span", {}, `block ${b + 1}`), select)];
      });
      this.choices = choices.map(([select]) => select);
      this.group("Masks, the first block’s first", ...choices.map(([, label]) => label));
    }

    draw() {
      const { words, masks } = this.given;
      // In a block, j can change i if j can change some k so far, and i may attend to k, or is k.
      let seen = words.map((_, i) => words.map((_, j) => i === j));
      for (const { value } of this.choices) {
        const before = seen;
        seen = words.map((_, i) => words.map((_, j) => words.some((_, k) => masks[value][i][k] && before[k][j])));
      }
      let future = 0;
      words.forEach((_, i) => words.forEach((_, j) => {
        const ahead = seen[i][j] && j > i;
        future += ahead;
        write(this.row("stack", i)[j + 1], seen[i][j] ? "yes" : "–", seen[i][j] ? 1 : undefined, ahead);
      }));
      const number = this.choices.filter(({ value }) => value !== "left out").length;
      this.status.textContent = `${count(number, "block")}. ` + (future
        ? `The future is seen, in ${count(future, "starred pair")}.`
        : "Nobody sees the future.");
    }
  }

  class Vision extends Figure {
    build() {
      const { names, weights } = this.given;
      const choose = (name, options, chosen = 0) => {
        const select = make("select", {}, ...options.map((text) => make("option", {}, text)));
        select.selectedIndex = chosen;
        return [select, make("label", { class: "try-slider" }, make("span", {}, name), select)];
      };
      const patches = Array.from({ length: 16 }, (_, i) => `patch ${i}`);
      const blocks = weights[0].map((_, b) => `block ${b}`);
      const choices = [
        choose("digit", names),
        choose("block", [...blocks, "all, by rollout"], blocks.length - 1),
        choose("head", weights[0][0].map((_, h) => `head ${h}`)),
        choose("asks", ["class token", ...patches]),
      ];
      [this.digit, this.block, this.head, this.asks] = choices.map(([select]) => select);
      this.group("Where does it look?", ...choices.map(([, label]) => label));
    }

    draw() {
      const { images, weights, rollout, falls } = this.given;
      const [digit, block, head, asks] =
        [this.digit, this.block, this.head, this.asks].map((select) => select.selectedIndex);
      const rolled = block === weights[digit].length;
      this.head.disabled = rolled;
      const all = rolled ? rollout[digit] : weights[digit][block][head];
      const [own, ...row] = all.slice(17 * asks, 17 * asks + 17).map((number) => number / 1000);
      const fall = falls[digit];

      const who = asks ? `Patch ${asks - 1}` : "The class token";
      this.table("looks").caption.textContent =
        `${who} asks, ${rolled ? "all blocks by rollout" : `block ${block}, head ${head}`}`;
      row.forEach((weight, i) => write(this.row("looks", Math.floor(i / 4))[1 + (i % 4)], two(weight), weight));
      write(this.table("looks").tFoot.rows[0].cells[1], two(own), own);

      const shade = (name, numbers) => {
        const most = name === "ink" ? 1 : Math.max(...numbers, 1e-9);
        this.querySelectorAll(`.try-${name}`).forEach((square, i) =>
          square.setAttribute("fill-opacity", (Math.max(0, numbers[i]) / most).toFixed(2)));
      };
      shade("ink", images[digit]);
      shade("weight", row);
      shade("fall", fall);
      const frame = this.querySelector(".try-asks");
      frame.setAttribute("visibility", asks ? "visible" : "hidden");
      if (asks) {
        frame.setAttribute("x", 4 + 24 * ((asks - 1) % 4));
        frame.setAttribute("y", 4 + 24 * Math.floor((asks - 1) / 4));
      }
      const first = (numbers) => numbers.indexOf(Math.max(...numbers));
      this.status.textContent = `Of the patches, ${first(row)} has most weight, ${two(Math.max(...row))}; ` +
        `all together have ${two(sum(row))}. The answer hangs most on patch ${first(fall)}: ` +
        `erasing it lowers the chance by ${two(Math.max(...fall))}.`;
    }
  }

  class Words extends Figure {
    build() {
      const { tokens, heads, weights, head, asks } = this.given;
      this.weights = weights.map((text) => Array.from(atob(text), (byte) => byte.charCodeAt(0) / 100));
      const choose = (name, options, chosen) => {
        const select = make("select", {}, ...options.map((text) => make("option", {}, text)));
        select.selectedIndex = chosen;
        return [select, make("label", { class: "try-slider" }, make("span", {}, name), select)];
      };
      const numbers = (length) => Array.from({ length }, (_, i) => String(i));
      const text = (words) => words.slice(1, -1).join(" ").replace(" .", ".");
      const choices = [
        choose("sentence", tokens.map(text), 0),
        choose("block", numbers(heads[0]), head[0]),
        choose("head", numbers(heads[1]), head[1]),
      ];
      [this.sentence, this.block, this.head] = choices.map(([select]) => select);
      const [silent, label] = this.tick("checkbox", "silence this head");
      this.silent = silent;
      this.group("Which head?", ...choices.map(([, label]) => label), label);

      this.asks = asks; // the chosen word; one that is pointed at asks as long as it is
      this.sentence.addEventListener("input", () => {
        this.asks = Math.max(1, tokens[this.sentence.selectedIndex].indexOf("it"));
      });
      this.querySelectorAll(".try-head").forEach((square, i) => square.addEventListener("click", () => {
        [this.block.selectedIndex, this.head.selectedIndex] = [Math.floor(i / heads[1]), i % heads[1]];
        this.update();
      }));
    }

    // A button for each word, made anew for each sentence.
    words() {
      const words = this.given.tokens[this.sentence.selectedIndex];
      const body = this.table("asked").tBodies[0];
      if (this.made === words) return;
      this.made = words;
      const ask = (i, pointed) => () => {
        if (!pointed) this.asks = i;
        this.pointed = pointed ? i : undefined;
        this.update();
      };
      body.replaceChildren(...words.map((word, i) => {
        const button = make("button", { type: "button" }, word);
        for (const event of ["click", "focus"]) button.addEventListener(event, ask(i, false));
        button.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && ask(i, true)());
        button.addEventListener("pointerleave", () => {
          this.pointed = undefined;
          this.update();
        });
        button.addEventListener("keydown", (event) => {
          const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
          const other = step && body.rows[i + step];
          if (!other) return;
          event.preventDefault();
          other.querySelector("button").focus();
        });
        return make("tr", {}, make("th", { scope: "row" }, button), make("td"));
      }));
    }

    draw() {
      const { tokens, heads, moved } = this.given;
      const sentence = this.sentence.selectedIndex;
      const [block, head] = [this.block.selectedIndex, this.head.selectedIndex];
      const words = tokens[sentence];
      const n = words.length;
      this.words();
      const asks = this.pointed ?? this.asks;
      const rowOf = (i) => this.weights[sentence].slice((i * n + asks) * n, (i * n + asks) * n + n);
      const chosen = heads[1] * block + head;
      const row = rowOf(chosen);
      const silent = this.silent.checked;
      const most = row.indexOf(Math.max(...row));

      this.table("asked").caption.textContent =
        `“${words[asks]}” asks, block ${block}, head ${head}${silent ? ", silent" : ""}`;
      row.forEach((weight, i) => {
        const [name, cell] = this.row("asked", i);
        write(cell, two(weight), silent ? undefined : weight);
        cell.classList.toggle("try-hidden", silent);
        name.firstChild.setAttribute("aria-pressed", i === asks);
      });
      this.querySelectorAll(".try-weight").forEach((square, i) =>
        square.setAttribute("fill-opacity", (silent && i === chosen ? 0 : rowOf(i)[most]).toFixed(2)));
      const [x, y] = ["x", "y"].map((name) => this.querySelectorAll(".try-head")[chosen].getAttribute(name));
      this.querySelector(".try-asks").setAttribute("x", x);
      this.querySelector(".try-asks").setAttribute("y", y);

      const ways = moved[sentence];
      const more = ways.filter((way) => way > ways[chosen]).length;
      this.status.textContent = silent
        ? `Without head (${block}, ${head}) the vector of the sentence moves by ${ways[chosen].toFixed(4)} ` +
          `(1 less the cosine). Heads that move it more: ${more} of ${ways.length}.`
        : `“${words[asks]}” gives most weight to “${words[most]}”, ${two(row[most])}. ` +
          `Heads that give it 0.30 or more: ${ways.filter((_, i) => rowOf(i)[most] >= 0.3).length} ` +
          `of ${ways.length}.`;
    }
  }

  customElements.define("try-intro", Intro);
  customElements.define("try-attention-operator", AttentionOperator);
  customElements.define("try-masking", Masking);
  customElements.define("try-multihead", Multihead);
  customElements.define("try-permutation", Permutation);
  customElements.define("try-positional", Positional);
  customElements.define("try-scaling", Scaling);
  customElements.define("try-transformer", Transformer);
  customElements.define("try-vision", Vision);
  customElements.define("try-words", Words);
}
