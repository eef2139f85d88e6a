/** Dialogs and toasts. Esc or leaving the view closes a dialog. */

import { h } from "./dom.js";
import { icon } from "./icons.js";

/**
 * A form with a confirm button: `await ask({ title, description, fields, act, danger })`. Resolves with the field
 * values, or null if the dialog was dismissed. `act` labels the confirm button and `dismiss` the other one; a dialog
 * that `isRequired` cannot be dismissed. `submit` runs while the dialog waits, and its error is shown there.
 */
export function ask({ title, description = [], fields = [], act, dismiss = "Cancel", danger = false, isRequired = false, submit = async () => {} }) {
  return new Promise((resolve) => {
    let isSubmitting = false;
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
          isSubmitting = true;
          try {
            await submit(values);
            settle(values);
          } catch (error) {
            isSubmitting = false;
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
      description,
      inputs,
      trouble,
      h("div.acts", !isRequired && h("button", { type: "button", onclick: () => leave() }, dismiss), button),
    );
    const dialog = shown(form, title);
    // A request that has started continues after the dialog closes; its result is shown as a toast.
    const leave = () => (isSubmitting ? close() : settle(null));
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
    if (isRequired) {
      dialog.oncancel = (event) => event.preventDefault();
      // Browsers close a dialog at the second Esc even if the first was prevented.
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

/** A dialog with a close button; returns the function that closes it. */
export function showDialog(title, ...content) {
  const close = () => {
    dialog.close();
    dialog.remove();
  };
  const head = h("div.head", h("h2", title), h("button.quiet", { type: "button", onclick: close, "aria-label": "Close" }, icon("close")));
  const dialog = shown(h("div", head, content), title);
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

/** A message that disappears by itself; `kind` is `good` or `bad`. */
export function toast(text, kind = "good") {
  const note = h("div.toast", { class: kind }, icon(kind === "bad" ? "bad" : "good"), h("span", text));
  const close = () => note.remove();
  note.append(h("button.quiet", { type: "button", onclick: close, "aria-label": "Dismiss" }, icon("close")));
  document.getElementById("toasts").append(note);
  setTimeout(close, TOAST_MS);
}
