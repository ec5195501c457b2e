#!/usr/bin/env bash
# check.sh TARE_BINARY VENV: what deploy/ holds is valid: the chart renders, its tare.yaml is one the
# gateway takes and its manifests are Kubernetes' (manifests.py), alert rules fire when they should,
# systemd takes the unit, the image has the libraries, dashboards only ask for metrics that exist.
# Tools that are not installed (helm, kubeconform, promtool, systemd-analyze) are named and their part
# is left out; 77 without any.
set -euo pipefail
tare=$1
venv=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
deploy=$(cd "$here/../../deploy" && pwd)
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

# The image installs every library the binary needs; those of the C++ runtime are in its base.
if command -v dpkg-query >/dev/null && command -v readelf >/dev/null; then
  installed=$(awk '/^FROM/ { text = "" } { text = text " " $0 } END { print text }' "$deploy/docker/Dockerfile")
  PATH=$PATH:/usr/sbin:/sbin ldconfig -p >"$out/libraries"  # of users' PATHs it is often missing
  for library in $(readelf -d "$tare" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    path=$(awk -v library="$library" '$1 == library { print $NF; exit }' "$out/libraries")
    [ -n "$path" ] || { echo "ldconfig does not know $library, which the binary needs"; exit 1; }
    file=$(readlink -f "$path")
    # A package may list a file below /lib that lies below /usr/lib.
    package=$({ dpkg-query -S "$file" || dpkg-query -S "${file#/usr}"; } 2>/dev/null | sed -n '1s/:.*//p')
    case $package in libc6 | libgcc-s1 | libstdc++6) continue ;; esac
    [ -n "$package" ] || { echo "no package has $path, which the binary needs"; exit 1; }
    case " $installed " in *" $package "*) continue ;; esac
    echo "deploy/docker/Dockerfile does not install $package, which has $library"
    exit 1
  done
fi

if command -v promtool >/dev/null; then
  (cd "$deploy/prometheus" && promtool check rules alerts.yaml && promtool test rules alerts_test.yaml &&
    promtool check config --syntax-only scrape.yaml) >"$out/promtool" 2>&1 || { cat "$out/promtool"; exit 1; }
  checked=1
else
  echo "promtool is not installed (Debian package prometheus): alert rules were not tried"
fi

if command -v helm >/dev/null; then
  export HOSTED_KEY=x SEARCH_KEY=y
  number=0
  for values in "" "-f $deploy/helm/tare/examples/vllm.yaml --set autoscaling.targetQueueDepth=4" \
    "--set persistence.enabled=true --set replicas=1"; do
    # shellcheck disable=SC2086
    helm lint --strict "$deploy/helm/tare" $values >"$out/lint" 2>&1 || { cat "$out/lint"; exit 1; }
    number=$((number + 1))
    # shellcheck disable=SC2086
    helm template t "$deploy/helm/tare" $values >"$out/manifests-$number.yaml" 2>"$out/log" || { cat "$out/log"; exit 1; }
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

if python=$("$here/../python/venv.sh" "$venv" 2>/dev/null); then
  kubeconform=$(command -v kubeconform) || echo "kubeconform is not installed: manifests were not tried with it"
  "$python" "$here/manifests.py" ${kubeconform:+--kubeconform "$kubeconform"} "$deploy/load/load-test.yaml" \
    $(find "$out" -name 'manifests-*.yaml' | sort)
  checked=1
else
  echo "the packages of tests/python/requirements.txt are not here: manifests were not tried"
fi

if command -v systemd-analyze >/dev/null; then
  # The unit names where the binary is installed; here it is where it was built.
  sed "s#/usr/local/bin/tare#$(realpath "$tare")#" "$deploy/systemd/tare.service" >"$out/tare.service"
  systemd-analyze verify "$out/tare.service" >"$out/log" 2>&1 || { cat "$out/log"; exit 1; }
  [ ! -s "$out/log" ] || { cat "$out/log"; exit 1; }
  checked=1
else
  echo "systemd-analyze is not installed: the unit was not verified"
fi

[ "$checked" = 1 ] || exit 77
echo "deploy: valid"
