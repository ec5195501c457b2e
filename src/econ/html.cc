#include "econ/html.h"

#include <fmt/format.h>

#include "base/html.h"

namespace tare::econ {
namespace {

constexpr std::string_view kStyle = R"css(
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5d6b7c; --line: #d9e0e8;
  --paper: #ffffff; --panel: #f5f7fa; --a: #2f6fb5; --b: #c4622d; --c: #3c8d5a; --d: #7a56a8;
  --bad: #b3261e; --warn: #a15c00; --ok: #2e7d4f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf1; --soft: #9aa8b8; --line: #2d3743;
  --paper: #12171d; --panel: #1a2129; --a: #6aa5e4; --b: #e6935f; --c: #6cc08c; --d: #b594df;
  --bad: #f2857d; --warn: #e5ae5c; --ok: #79c99a; } }
body { margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 68rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p.note, small { color: var(--soft); } figure { margin: 1rem 0; } figcaption { color: var(--soft); }
table { border-collapse: collapse; width: 100%; } th { text-align: left; color: var(--soft);
  font-weight: 600; } th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line);
  vertical-align: top; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.impossible { color: var(--bad); font-weight: 700; } .inconsistent { color: var(--warn);
  font-weight: 700; } .unsupported { color: var(--soft); font-weight: 600; }
.plausible { color: var(--ok); font-weight: 600; }
.cards { display: flex; gap: .8rem; flex-wrap: wrap; margin: 1rem 0; } .cards div {
  background: var(--panel); border: 1px solid var(--line); border-radius: .5rem;
  padding: .6rem 1rem; } .cards b { display: block; font-size: 1.3rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
code { font-size: .92em; } ol { margin: .4rem 0 1rem; padding-left: 1.6rem; }
@media print { body { padding: 0; max-width: none; font-size: 11px; } figure, tr { break-inside: avoid; }
  h2 { break-after: avoid; } td, .matrix td { print-color-adjust: exact; } }
)css";

}  // namespace

std::string HtmlPage(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
      "name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
      EscapeHtml(title), kStyle, body);
}

}  // namespace tare::econ
