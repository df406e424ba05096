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

// mediaTypes are those of patches.
var mediaTypes = map[hostabi.PatchType]types.PatchType{
	hostabi.PatchMerge: types.MergePatchType,
	hostabi.PatchJSON:  types.JSONPatchType,
	hostabi.PatchApply: types.ApplyYAMLPatchType,
}

func (e *Executor) patch(ctx context.Context, on Behalf, patch hostabi.PatchIntent) (hostabi.Result, error) {
	r, err := e.object(on, policies.VerbPatch, patch.Target)
	if err != nil {
		return hostabi.Result{}, err
	}
	mediaType, known := mediaTypes[patch.Type]
	if !known {
		return hostabi.Result{}, problemf(hostabi.ErrorInvalid, "%q is no type of patch: write merge, json or apply", patch.Type)
	}
	c := callOf(http.MethodPatch, r, patch.Target)
	c.query, c.body, c.mediaType = strict(on), patch.Patch, string(mediaType)
	if patch.Type == hostabi.PatchApply {
		if c.body, err = applied(on, r, patch); err != nil {
			return hostabi.Result{}, err
		}
	}
	return e.one(ctx, on, about("patch", c, patch.Name), c)
}

// applied is an apply patch as it is sent: with the coordinates that it has to have.
// Such a patch creates what is not there, so without a grant to create it has to say
// by uid which object it is for.
func applied(on Behalf, r catalog.Resource, patch hostabi.PatchIntent) ([]byte, error) {
	var o hostabi.Object
	body, metadata := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	err := errors.Join(json.Unmarshal(patch.Patch, &body), o.UnmarshalJSON(patch.Patch))
	if err == nil && len(body["metadata"]) != 0 {
		err = json.Unmarshal(body["metadata"], &metadata)
	}
	if err != nil || body == nil || metadata == nil {
		return nil, problemf(hostabi.ErrorInvalid, "the patch is no object: write the fields that are to be as they are there")
	}
	if o.Metadata.UID == "" && !covers(on.Grants, policies.VerbCreate, r, patch.Namespace) {
		return nil, problemf(hostabi.ErrorNotGranted,
			"an apply patch creates what is not there: write the object's uid into its metadata.uid, or grant create")
	}
	complete(metadata, map[string]string{"name": patch.Name, "namespace": patch.Namespace})
	if body["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, problemf(hostabi.ErrorInvalid, "the patch can't be written: %s", err)
	}
	complete(body, map[string]string{"apiVersion": patch.APIVersion, "kind": patch.Kind})
	data, err := json.Marshal(body)
	if err != nil {
		return nil, problemf(hostabi.ErrorInvalid, "the patch can't be written: %s", err)
	}
	return data, nil
}

// complete adds the fields that are missing. None of the values needs escapes.
func complete(object map[string]json.RawMessage, values map[string]string) {
	for name, value := range values {
		if _, ok := object[name]; !ok && value != "" {
			object[name] = json.RawMessage(strconv.Quote(value))
		}
	}
}
