// The fields of a request that this policy reads. docs/reference/abi.md has all of them.

import { JSONReader } from "./json";

export const claim = "PersistentVolumeClaim";

/** The result of an intent: an error, or what the intent asked for. */
export class Result {
  reason: string = ""; // of the error; empty: the intent was carried out
  message: string = "";
}

export class Request {
  settings: JSONReader | null = null;
  state: JSONReader | null = null;
  hold: Result | null = null; // the result of the intent with the id "hold"

  // Of the object.
  apiVersion: string = "";
  kind: string = "";
  namespace: string = "";
  keep: bool = false; // it has the label or annotation keep=true

  // Of the dependents.
  hasDependents: bool = false;
  hasClaims: bool = false;

  static of(document: ArrayBuffer): Request {
    const request = new Request();
    const json = JSONReader.of(document);
    json.enterObject();
    while (json.nextField()) {
      const name = json.name();
      if (name == "policy") request.readPolicy(json);
      else if (name == "object") request.readObject(json);
      else if (name == "dependents") request.readDependents(json);
      else if (name == "results") request.readResults(json);
      else if (name == "state") request.state = json.value();
      else json.skip();
    }
    json.finish();
    return request;
  }

  private readPolicy(json: JSONReader): void {
    json.enterObject();
    while (json.nextField()) {
      if (json.name() == "settings") this.settings = json.value();
      else json.skip();
    }
  }

  /** Validate has no object: null is read as an empty one. */
  private readObject(json: JSONReader): void {
    json.enterObject();
    while (json.nextField()) {
      const name = json.name();
      if (name == "apiVersion") this.apiVersion = json.string();
      else if (name == "kind") this.kind = json.string();
      else if (name == "metadata") this.readMetadata(json);
      else json.skip();
    }
  }

  private readMetadata(json: JSONReader): void {
    json.enterObject();
    while (json.nextField()) {
      const name = json.name();
      if (name == "namespace") this.namespace = json.string();
      else if (name == "labels" || name == "annotations") this.readMarks(json);
      else json.skip();
    }
  }

  private readMarks(json: JSONReader): void {
    json.enterObject();
    while (json.nextField()) {
      if (json.name() != "keep") json.skip();
      else if (json.string() == "true") this.keep = true;
    }
  }

  private readDependents(json: JSONReader): void {
    json.enterObject();
    while (json.nextField()) {
      const name = json.name();
      if (name == "count") this.hasDependents = json.number() != "0";
      else if (name == "byKind") {
        json.enterArray();
        while (json.nextItem()) this.readKindCount(json);
      } else json.skip();
    }
  }

  private readKindCount(json: JSONReader): void {
    let group = "";
    let kind = "";
    json.enterObject();
    while (json.nextField()) {
      const name = json.name();
      if (name == "group") group = json.string();
      else if (name == "kind") kind = json.string();
      else json.skip();
    }
    if (group == "" && kind == claim) this.hasClaims = true;
  }

  private readResults(json: JSONReader): void {
    json.enterObject();
    while (json.nextField()) {
      if (json.name() == "hold") this.hold = readResult(json);
      else json.skip();
    }
  }
}

function readResult(json: JSONReader): Result {
  const result = new Result();
  json.enterObject();
  while (json.nextField()) {
    if (json.name() != "error") {
      json.skip();
      continue;
    }
    json.enterObject();
    while (json.nextField()) {
      const name = json.name();
      if (name == "reason") result.reason = json.string();
      else if (name == "message") result.message = json.string();
      else json.skip();
    }
  }
  return result;
}
