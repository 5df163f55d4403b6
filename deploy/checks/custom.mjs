// Holds custom resources, as JSON on standard input, against their published schemas.
import { pathToFileURL } from "node:url";

const load = (path) => import(pathToFileURL(`${process.argv[2]}/node_modules/@kubernetes-models/${path}.js`));
const kinds = {
  "keda.sh/v1alpha1/ScaledObject": "keda/keda.sh/v1alpha1/ScaledObject",
  "monitoring.coreos.com/v1/ServiceMonitor": "prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor",
};

let text = "";
for await (const part of process.stdin) text += part;
let bad = 0;
for (const { from, object } of JSON.parse(text)) {
  const kind = `${object.apiVersion}/${object.kind}`;
  if (!kinds[kind]) {
    console.error(`${from}: no schema for ${kind}`);
    bad += 1;
    continue;
  }
  const { [object.kind]: Model } = await load(kinds[kind]);
  try {
    new Model(object).validate();
    console.log(`   ${from}: ${object.kind} ${object.metadata.name}`);
  } catch (error) {
    console.error(`${from}: ${object.kind} ${object.metadata.name}: ${error.message}`);
    bad += 1;
  }
}
process.exit(bad ? 1 : 0);
