/**
 * Dialogs: one that asks and says what will happen, and one that only tells. Esc closes either, and whoever goes
 * to another view leaves what was asked there.
 */

import { h } from "./dom.js";
import { icon } from "./icons.js";

/**
 * Asks, and says what will happen: `await ask({ title, says, fields, act, danger })`. Resolves with the
 * values of the fields, or null if it was closed. `act` is the word on the button, and names what it does.
 * `insists` leaves no way out but the button. `doing` is done while the dialog waits; its error is shown in it.
 */
export function ask({ title, says = [], fields = [], act, danger = false, insists = false, doing = async () => {} }) {
  return new Promise((resolve) => {
    let isDoing = false;
    const trouble = h("p.refused", { role: "alert", hidden: true });
    const button = h("button.main", { type: "submit" }, act);
    if (danger) button.classList.add("danger");
    const inputs = fields.map(fieldOf);
    const form = h(
      "form",
      {
        onsubmit: async (event) => {
          event.preventDefault();
          const values = Object.fromEntries(new FormData(form));
          button.disabled = true;
          isDoing = true;
          try {
            await doing(values);
            settle(values);
          } catch (error) {
            isDoing = false;
            if (!dialog.isConnected) {
              toast(error.message, "bad");
              return resolve(null);
            }
            trouble.hidden = false;
            trouble.replaceChildren(icon("bad"), error.message);
            button.disabled = false;
          }
        },
      },
      h("h2", title),
      says,
      inputs,
      trouble,
      h("div.acts", !insists && h("button", { type: "button", onclick: () => leave() }, "Leave it"), button),
    );
    const dialog = shown(form, title);
    // What is begun goes on: whoever leaves meanwhile is told what came of it where they are then.
    const leave = () => (isDoing ? close() : settle(null));
    const close = () => {
      removeEventListener("hashchange", leave);
      dialog.onclose = null;
      dialog.close();
      dialog.remove();
    };
    const settle = (values) => {
      close();
      resolve(values);
    };
    if (insists) {
      dialog.oncancel = (event) => event.preventDefault();
      // A browser lets nobody be held for long: it closes the dialog at the second Esc, whatever it is told.
      dialog.onclose = () => dialog.showModal();
    } else {
      dialog.onclose = leave;
      addEventListener("hashchange", leave);
    }
    (form.querySelector("input, textarea, select") ?? button).focus();
  });
}

function fieldOf({ name, label, hint, type = "text", rows, options, value, ...rest }) {
  const id = `field-${name}`;
  const described = hint ? { "aria-describedby": `${id}-hint` } : {};
  const input =
    options ? h("select", { id, name, ...described, ...rest }, options.map(([value, text]) => h("option", { value }, text)))
    : rows ? h("textarea", { id, name, rows, ...described, ...rest }, value)
    : h("input", { id, name, type, value, ...described, ...rest });
  return h("div.field", h("label", { for: id }, label), input, hint && h("p.hint", { id: `${id}-hint` }, hint));
}

/** Tells something, until it is closed. */
export function tell(title, ...says) {
  const close = () => {
    dialog.close();
    dialog.remove();
  };
  const head = h("div.head", h("h2", title), h("button.quiet", { type: "button", onclick: close, "aria-label": "Close" }, icon("close")));
  const dialog = shown(h("div", head, says), title);
  dialog.onclose = () => dialog.remove();
  dialog.onclick = (event) => event.target === dialog && close();
  return close;
}

function shown(content, title) {
  const dialog = h("dialog", { "aria-label": title }, content);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

const TOAST_MS = 6000;

/** Says in passing how something went; `kind` is `good`, `bad` or nothing. */
export function toast(text, kind = "good") {
  const said = h("div.toast", { class: kind }, icon(kind === "bad" ? "bad" : "good"), h("span", text));
  const close = () => said.remove();
  said.append(h("button.quiet", { type: "button", onclick: close, "aria-label": "Dismiss" }, icon("close")));
  document.getElementById("toasts").append(said);
  setTimeout(close, TOAST_MS);
}
