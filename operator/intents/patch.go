package intents

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/policies"
)

// mediaTypes are the media types of patches.
var mediaTypes = map[hostabi.PatchType]types.PatchType{
	hostabi.PatchMerge: types.MergePatchType,
	hostabi.PatchJSON:  types.JSONPatchType,
	hostabi.PatchApply: types.ApplyYAMLPatchType,
}

func (e *Executor) patch(ctx context.Context, identity Identity, patch hostabi.PatchIntent) (hostabi.Result, error) {
	r, err := e.resolveObject(identity, policies.VerbPatch, patch.Target)
	if err != nil {
		return hostabi.Result{}, err
	}
	mediaType, known := mediaTypes[patch.Type]
	if !known {
		return hostabi.Result{}, errorf(hostabi.ErrorInvalid, "unknown patch type %q: write merge, json or apply", patch.Type)
	}
	c := newCall(http.MethodPatch, r, patch.Target)
	c.query, c.body, c.mediaType = writeOptions(identity), patch.Patch, string(mediaType)
	if patch.Type == hostabi.PatchApply {
		if c.body, err = applyPatchBody(identity, r, patch); err != nil {
			return hostabi.Result{}, err
		}
	}
	return e.callForObject(ctx, identity, describeCall("patch", c, patch.Name), c)
}

// applyPatchBody returns the body of an apply patch, completed with apiVersion, kind, namespace
// and name. Apply creates objects that do not exist, so without a grant to create, the
// patch must have the object's uid.
func applyPatchBody(identity Identity, r catalog.Resource, patch hostabi.PatchIntent) ([]byte, error) {
	var o hostabi.Object
	body, metadata := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	err := errors.Join(json.Unmarshal(patch.Patch, &body), o.UnmarshalJSON(patch.Patch))
	if err == nil && len(body["metadata"]) != 0 {
		err = json.Unmarshal(body["metadata"], &metadata)
	}
	if err != nil || body == nil || metadata == nil {
		return nil, errorf(hostabi.ErrorInvalid, "the patch is not an object: write an object with the fields to apply")
	}
	if o.Metadata.UID == "" && !isGranted(identity.Grants, policies.VerbCreate, r, patch.Namespace) {
		return nil, errorf(hostabi.ErrorNotGranted,
			"an apply patch may create the object: set metadata.uid, or grant create")
	}
	setDefaults(metadata, map[string]string{"name": patch.Name, "namespace": patch.Namespace})
	if body["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, errorf(hostabi.ErrorInvalid, "encode patch: %s", err)
	}
	setDefaults(body, map[string]string{"apiVersion": patch.APIVersion, "kind": patch.Kind})
	data, err := json.Marshal(body)
	if err != nil {
		return nil, errorf(hostabi.ErrorInvalid, "encode patch: %s", err)
	}
	return data, nil
}

// setDefaults adds missing fields. The values must not need escaping.
func setDefaults(object map[string]json.RawMessage, values map[string]string) {
	for name, value := range values {
		if _, ok := object[name]; !ok && value != "" {
			object[name] = json.RawMessage(strconv.Quote(value))
		}
	}
}
