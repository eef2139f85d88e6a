/** The icons of the page: a few strokes each, drawn in the colour of the text around them. */

import { s } from "./dom.js";

/** Each by its strokes within 16 by 16. */
const STROKES = {
  overview: "M2 13V8m4 5V3m4 10V6m4 7V9",
  services: "M2.5 3h11v4h-11zm0 6h11v4h-11zM5 5h.01M5 11h.01",
  deliveries: "M2 4h8m-8 4h5m-5 4h8m1-6.500 3 2.500-3 2.500m3-2.500H9",
  groups: "M8 2 14.500 13.500h-13zM8 6.500v3.200m0 2v.01",
  replays: "M3 8a5 5 0 1 1 1.700 3.750M3 13v-3h3",
  breakers: "M1.500 11H5l5.500-6.500M11 11h3.500M11 8.800v4.400",
  book: "M3 2.500h7.500a2 2 0 0 1 2 2v9H5a2 2 0 0 1-2-2zm0 9a2 2 0 0 1 2-2h7.500",
  alerts: "M4 11V7a4 4 0 0 1 8 0v4l1 1.500H3zm2.700 3.200h2.600",
  doctor: "M1.500 8.500h3l2-5 3 9 2-4h3",
  simulate: "M8 2.500a4.700 4.700 0 1 0 .01 0zM4.500 13.500h7M5.500 8.300l1.700-2 1.600 1.700 1.700-2.300",
  audit: "M4 2.500h8v11H4zm2.200 3h3.600m-3.600 2.700h3.600m-3.600 2.700h2",
  keys: "M10.500 2.500a3 3 0 1 0 .01 0zM8.400 7.600 3 13m1.500-1.500L6 13",
  good: "m3 8.500 3.200 3.200L13 4.800",
  bad: "m4 4 8 8m0-8-8 8",
  retry: "M13 8a5 5 0 1 1-1.700-3.750M13 3v3h-3",
  hold: "M5.500 3.500v9m5-9v9",
  wait: "M8 4.500V8l2.300 1.600M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0z",
  gone: "M3.500 8h9",
  idle: "M3 8h.01M8 8h.01M13 8h.01",
  warn: "M8 3v6m0 3.500v.01",
  close: "m4 4 8 8m0-8-8 8",
  menu: "M2 4h12M2 8h12M2 12h12",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zm0-4v1.500m0 11V15M1 8h1.500m11 0H15M3 3l1.100 1.100m7.800 7.800L13 13M3 13l1.100-1.100m7.800-7.800L13 3",
  moon: "M13.500 9.800A6 6 0 0 1 6.200 2.500a6 6 0 1 0 7.300 7.300z",
  auto: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12",
  copy: "M5.500 5.500h8v8h-8zM2.500 10.500v-8h8",
  next: "m6 3 5 5-5 5",
  back: "m10 3-5 5 5 5",
};

export function icon(name) {
  return s("svg.icon", { viewBox: "0 0 16 16", "aria-hidden": "true", class: `i-${name}` }, s("path", { d: STROKES[name] }));
}
