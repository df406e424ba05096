// A policy that keeps claims with data in them. It is written against
// docs/reference/abi.md alone: sdk/go/examples/keep-data is the same policy with an SDK.
//
// A module exports a function without parameters and results for each hook that it
// implements, with the name of the hook. The function reads a request, and writes one
// verdict. It depends on nothing else: the same request gives the same verdict.

import { LogLevel, log, readRequest, writeVerdict } from "./host";
import { JSONReader } from "./json";
import { Request, claim } from "./request";
import { quote } from "./text";

const abstain = '{"decision":"Abstain"}';

/** Is called when an owner is being deleted: decides about its dependents. */
export function propagate(): void {
  writeVerdict(propagateVerdict(Request.of(readRequest())));
}

/** Is called when an object has lost its last owner: decides about the object. */
export function collect(): void {
  writeVerdict(collectVerdict(Request.of(readRequest())));
}

/** Is called when settings for the module are applied. The request has no object. */
export function validate(): void {
  writeVerdict(validateVerdict(Request.of(readRequest())));
}

/** Claims stay, and the other dependents are deleted. */
function propagateVerdict(request: Request): string {
  if (!request.hasClaims) return abstain;
  return `{"decision":"Background","dependents":[{"kind":"${claim}","decision":"Orphan"}]}`;
}

/** A claim is kept, or waits, or is deleted. */
function collectVerdict(request: Request): string {
  const settings = Settings.of(request);
  if (request.apiVersion != "v1" || request.kind != claim) return abstain;
  if (request.keep) return '{"decision":"Orphan","reason":"it has keep=true"}';
  if (settings.unless != "") {
    const verdict = holdVerdict(request, settings.unless);
    if (verdict != "") return verdict;
  }
  if (settings.wait != "" && settings.wait != waited(request)) {
    // The next request has the state of this verdict.
    const wait = quote(settings.wait);
    return `{"decision":"Wait","after":${wait},"state":{"waited":${wait}}}`;
  }
  if (request.hasDependents) return '{"decision":"Delete","propagation":"Foreground"}';
  return '{"decision":"Delete"}';
}

/**
 * Looks for the ConfigMap that keeps every claim. A module has no access to the API server:
 * it asks the host, by a verdict with intents, and is called again with their results. The
 * verdict is empty if the ConfigMap is known not to exist.
 */
function holdVerdict(request: Request, name: string): string {
  const result = request.hold;
  if (!result) {
    const namespace = quote(request.namespace);
    const get = `{"apiVersion":"v1","kind":"ConfigMap","namespace":${namespace},"name":${quote(name)}}`;
    return `{"decision":"Act","intents":[{"id":"hold","get":${get}}]}`;
  }
  if (result.reason == "") return waitVerdict(`ConfigMap ${name} is there`);
  if (result.reason == "NotFound") return "";
  // Any other error leaves it unknown whether the ConfigMap exists.
  log(LogLevel.Warn, `get ConfigMap ${name}: ${result.message}`);
  return waitVerdict(`ConfigMap ${name} can't be read: ${result.reason}`);
}

function waitVerdict(reason: string): string {
  return `{"decision":"Wait","reason":${quote(reason)}}`;
}

/** Returns the wait that the claim has behind it, as the state says. */
function waited(request: Request): string {
  let waited = "";
  const json = request.state;
  if (!json) return waited;
  json.enterObject();
  while (json.nextField()) {
    if (json.name() == "waited") waited = json.string();
    else json.skip();
  }
  return waited;
}

/** The settings, which a policy has in its field "settings". */
class Settings {
  wait: string = ""; // a duration, such as 1h: a claim is left alone for as long at first
  unless: string = ""; // the name of a ConfigMap that keeps every claim while it exists

  static of(request: Request): Settings {
    const settings = new Settings();
    const json = request.settings;
    if (!json) return settings;
    json.enterObject();
    while (json.nextField()) {
      const name = json.name();
      if (name == "wait") settings.wait = json.string();
      else if (name == "unless") settings.unless = json.string();
      else throw new Error(`settings: unknown field ${quote(name)}`);
    }
    return settings;
  }
}

/** Rejects settings with which collect could do nothing. */
function validateVerdict(request: Request): string {
  let unknown: string | null = null; // the first in alphabetical order
  let isValid = true;
  const json = request.settings;
  if (json) {
    json.enterObject();
    while (json.nextField()) {
      const name = json.name();
      if (name == "wait") isValid = isWait(json);
      else {
        if (name != "unless" && (!unknown || name < unknown)) unknown = name;
        json.skip();
      }
    }
  }
  if (unknown) return invalidVerdict(`unknown setting ${unknown}`);
  if (!isValid) return invalidVerdict("wait must be a number with s, m or h, such as 1h");
  return '{"decision":"Valid"}';
}

function invalidVerdict(reason: string): string {
  return `{"decision":"Invalid","reason":${quote(reason)}}`;
}

/** Reads a value, and reports whether it is a number of seconds, minutes or hours. */
function isWait(json: JSONReader): bool {
  if (!json.isString()) {
    json.skip();
    return false;
  }
  const text = json.string();
  const last = text.length - 1;
  if (last < 1 || !"smh".includes(text.charAt(last))) return false;
  for (let i = 0; i < last; i++) {
    if (!"0123456789".includes(text.charAt(i))) return false;
  }
  return true;
}
