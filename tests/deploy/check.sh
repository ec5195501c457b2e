#!/usr/bin/env bash
# check.sh TARE_BINARY: what deploy/ holds is valid: the chart renders and its tare.yaml is one the
# gateway takes, alert rules fire when they should, dashboards only ask for metrics that exist.
# Tools that are not installed (helm, promtool) are named and their part is left out; 77 without any.
set -euo pipefail
tare=$1
deploy=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../deploy" && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
checked=0

# Every metric that dashboard and alerts ask for is documented.
docs=$deploy/../docs/SERVING.md
for metric in $(grep -oh 'tare_[a-z0-9_]*' "$deploy/grafana/tare.json" "$deploy/prometheus/alerts.yaml" | sort -u); do
  name=${metric%_bucket}
  [ "$metric" = tare_gateway ] && continue
  grep -q "\`$name\`" "$docs" || { echo "docs/SERVING.md does not know the metric $name"; exit 1; }
done

if command -v promtool >/dev/null; then
  (cd "$deploy/prometheus" && promtool check rules alerts.yaml && promtool test rules alerts_test.yaml &&
    promtool check config --syntax-only scrape.yaml) >"$out/promtool" 2>&1 || { cat "$out/promtool"; exit 1; }
  checked=1
else
  echo "promtool is not installed (Debian package prometheus): alert rules were not tried"
fi

if command -v helm >/dev/null; then
  export HOSTED_KEY=x SEARCH_KEY=y
  for values in "" "-f $deploy/helm/tare/examples/vllm.yaml --set autoscaling.targetQueueDepth=4" \
    "--set persistence.enabled=true --set replicas=1"; do
    # shellcheck disable=SC2086
    helm lint --strict "$deploy/helm/tare" $values >"$out/lint" 2>&1 || { cat "$out/lint"; exit 1; }
    # shellcheck disable=SC2086
    helm template t "$deploy/helm/tare" $values >"$out/all.yaml" 2>"$out/log" || { cat "$out/log"; exit 1; }
    # shellcheck disable=SC2086
    helm template t "$deploy/helm/tare" $values -s templates/configmap.yaml 2>/dev/null |
      sed -n '/^  tare.yaml: |/,$p' | sed '1d; s/^    //' >"$out/tare.yaml"
    "$tare" serve --config "$out/tare.yaml" --check-config >"$out/log" 2>&1 || { cat "$out/log"; exit 1; }
  done
  if helm template t "$deploy/helm/tare" --set persistence.enabled=true >/dev/null 2>&1; then
    echo "the chart lets several pods share one volume of quotas"
    exit 1
  fi
  checked=1
else
  echo "helm is not installed: the chart was not rendered"
fi

[ "$checked" = 1 ] || exit 77
echo "deploy: valid"
