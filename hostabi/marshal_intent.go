package hostabi

func (e *encoder) intent(i Intent) {
	e.open()
	e.text("id", i.ID)
	if i.Get != nil {
		e.name("get")
		e.open()
		e.target(i.Get.Target)
		e.close()
	}
	if i.List != nil {
		e.name("list")
		e.listIntent(*i.List)
	}
	if i.Create != nil {
		e.name("create")
		e.open()
		e.document("object", i.Create.Object)
		e.close()
	}
	if i.Delete != nil {
		e.name("delete")
		e.open()
		e.target(i.Delete.Target)
		e.text("uid", i.Delete.UID)
		e.optionalText("resourceVersion", i.Delete.ResourceVersion)
		e.optionalText("propagation", string(i.Delete.Propagation))
		e.optionalSeconds(i.Delete.GracePeriodSeconds)
		e.close()
	}
	if i.Patch != nil {
		e.name("patch")
		e.open()
		e.target(i.Patch.Target)
		e.text("type", string(i.Patch.Type))
		e.document("patch", i.Patch.Patch)
		e.close()
	}
	if i.HTTP != nil {
		e.name("http")
		e.open()
		e.text("method", i.HTTP.Method)
		e.text("url", i.HTTP.URL)
		e.optionalMap("headers", i.HTTP.Headers)
		e.optionalText("body", i.HTTP.Body)
		e.close()
	}
	if i.Event != nil {
		e.name("event")
		e.open()
		e.text("type", string(i.Event.Type))
		e.text("reason", i.Event.Reason)
		e.text("message", i.Event.Message)
		e.close()
	}
	e.close()
}

func (e *encoder) target(t Target) {
	e.text("apiVersion", t.APIVersion)
	e.text("kind", t.Kind)
	e.optionalText("namespace", t.Namespace)
	e.text("name", t.Name)
}

func (e *encoder) listIntent(l ListIntent) {
	e.open()
	e.text("apiVersion", l.APIVersion)
	e.text("kind", l.Kind)
	e.optionalText("namespace", l.Namespace)
	e.optionalText("labelSelector", l.LabelSelector)
	e.optionalText("fieldSelector", l.FieldSelector)
	if l.Limit != 0 {
		e.int("limit", int64(l.Limit))
	}
	e.optionalText("continue", l.Continue)
	e.close()
}
