// Questions to the server. What it cannot answer is an error with a hint, shown where the answer would be.

import { asked } from "./place.js";

export class Failed extends Error {
  constructor(status, message, hint) {
    super(message);
    this.status = status;
    this.hint = hint;
  }
}

// Of the machine that is chosen, unless the caller says `fleet: ""`.
export async function ask(path, parameters = {}, signal = undefined) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ fleet: asked().fleet, ...parameters })) {
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  return answered(await reached(`/api/v1/${path}?${query}`, { signal }));
}

export async function post(path, body, signal = undefined) {
  const headers = { "Content-Type": "application/json" };
  const { fleet } = asked();
  const query = fleet ? `?${new URLSearchParams({ fleet })}` : "";
  return answered(await reached(`/api/v1/${path}${query}`, { method: "POST", headers, body: JSON.stringify(body), signal }));
}

async function reached(url, options) {
  try {
    return await fetch(url, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failed(0, "the server does not answer", "Is `ingero dashboard` still running?");
  }
}

async function answered(response) {
  if (response.status === 401) {
    location.assign(`/login?${new URLSearchParams({ next: location.pathname + location.search })}`);
    throw new Failed(401, "signed out", "Sign in again.");
  }
  const text = await response.text();
  if (response.ok) return JSON.parse(text);
  let said = { error: text.trim() || `error ${response.status}`, hint: "" };
  try {
    said = JSON.parse(text);
  } catch {
    // plain text, from the guard
  }
  throw new Failed(response.status, said.error, said.hint);
}
