#include "load/servegen.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/text.h"
#include "base/units.h"
#include "load/random.h"

namespace tare::load {
namespace {

using nlohmann::json;

constexpr std::string_view kTraceEnd = "-trace.csv";
constexpr std::string_view kDatasetEnd = "-dataset.json";
constexpr int kMostTokens = 10'000'000;
// A trace is held in memory; two million requests are about 100 MB.
constexpr double kMostRequests = 2e6;

const ClientLengths& LengthsAt(const Client& client, double t) {
  const ClientLengths* at = &client.lengths.front();
  for (const ClientLengths& lengths : client.lengths) {
    if (lengths.start <= t) at = &lengths;
  }
  return *at;
}

double EndOf(const Client& client, std::size_t window) {
  if (window + 1 < client.windows.size()) return client.windows[window + 1].start;
  // The last window is as long as the one before it.
  constexpr double kUsualWindow = 600;
  return client.windows[window].start +
         (window > 0 ? client.windows[window].start - client.windows[window - 1].start
                     : kUsualWindow);
}

// Requests expected of all clients in [from, to).
double Expected(const std::vector<Client>& clients, double from, double to) {
  double sum = 0;
  for (const Client& client : clients) {
    for (std::size_t i = 0; i < client.windows.size(); ++i) {
      const double inside =
          std::min(to, EndOf(client, i)) - std::max(from, client.windows[i].start);
      if (inside > 0 && client.windows[i].gaps != ClientWindow::Gaps::kNone)
        sum += inside * client.windows[i].rate;
    }
  }
  return sum;
}

// A gap of mean 1 with the window's character.
double Gap(const ClientWindow& window, Random& random) {
  if (window.gaps == ClientWindow::Gaps::kGamma) return random.Gamma(window.shape) / window.shape;
  return std::pow(random.Exponential(), 1 / window.shape) / std::tgamma(1 + 1 / window.shape);
}

}  // namespace

int LengthDistribution::At(double share) const {
  if (tokens.empty()) return 0;
  const auto it = std::lower_bound(cumulative.begin(), cumulative.end(), share);
  const auto index = static_cast<std::size_t>(it - cumulative.begin());
  return tokens[std::min(index, tokens.size() - 1)];
}

Result<LengthDistribution> ParseDistribution(std::string_view text) {
  text = Trim(text);
  if (text.size() < 2 || text.front() != '{' || text.back() != '}') {
    return Fail(ErrorKind::kInvalidArgument, "a distribution is written {{71: 0.25, 72: 0.75}}");
  }
  std::vector<std::pair<int, double>> entries;
  double sum = 0;
  const std::string_view inside = Trim(text.substr(1, text.size() - 2));
  for (const std::string_view item : Split(inside, ',')) {
    if (inside.empty()) break;
    const std::size_t colon = item.find(':');
    if (colon == std::string_view::npos) {
      return Fail(ErrorKind::kInvalidArgument, "'{}' is no length with a probability", item);
    }
    TARE_TRY(const std::int64_t tokens, ParseInteger(Trim(item.substr(0, colon))));
    TARE_TRY(const double share, ParseNumber(Trim(item.substr(colon + 1))));
    if (tokens < 0 || tokens > kMostTokens || !(share >= 0) || share > 1.001) {
      return Fail(ErrorKind::kInvalidArgument, "'{}' is out of range", item);
    }
    entries.emplace_back(static_cast<int>(tokens), share);
    sum += share;
  }
  if (!(sum > 0)) return Fail(ErrorKind::kInvalidArgument, "a distribution without a length");
  std::sort(entries.begin(), entries.end());
  LengthDistribution distribution;
  double so_far = 0;
  for (const auto& [tokens, share] : entries) {
    so_far += share;
    distribution.tokens.push_back(tokens);
    distribution.cumulative.push_back(so_far / sum);
  }
  return distribution;
}

Result<std::vector<ClientWindow>> ParseClientWindows(std::string_view csv) {
  std::vector<ClientWindow> windows;
  std::size_t number = 0;
  for (const std::string_view raw : Split(csv, '\n')) {
    ++number;
    const std::string_view line = Trim(raw);
    if (line.empty()) continue;
    const std::vector<std::string_view> cells = Split(line, ',');
    const auto fail = [&](std::string_view why) {
      return Fail(ErrorKind::kInvalidArgument, "line {}: {}", number, why);
    };
    if (cells.size() != 6) {
      return fail("six columns are needed: start,rate,cv,distribution,shape,scale");
    }
    ClientWindow window;
    double* const numbers[] = {&window.start, &window.rate, &window.cv, nullptr, &window.shape};
    for (std::size_t i = 0; i < std::size(numbers); ++i) {
      if (numbers[i] == nullptr) continue;
      const Result<double> value = ParseNumber(Trim(cells[i]));
      if (!value || !(*value >= 0)) return fail(fmt::format("'{}' is no number ≥ 0", cells[i]));
      *numbers[i] = *value;
    }
    const std::string_view kind = Trim(cells[3]);
    window.gaps = kind == "Gamma"     ? ClientWindow::Gaps::kGamma
                  : kind == "Weibull" ? ClientWindow::Gaps::kWeibull
                                      : ClientWindow::Gaps::kNone;
    if (!kind.empty() && window.gaps == ClientWindow::Gaps::kNone) {
      return fail(fmt::format("distribution '{}' is not known; Gamma and Weibull are", kind));
    }
    // The published clients go down to 0.019; far below, one gap is longer than any window.
    if (window.gaps != ClientWindow::Gaps::kNone && !(window.shape >= 0.005)) {
      return fail(fmt::format("shape {} is out of range", window.shape));
    }
    if (window.gaps == ClientWindow::Gaps::kNone) window.rate = 0;
    if (!windows.empty() && window.start <= windows.back().start) {
      return fail("the windows are not in the order of time");
    }
    windows.push_back(window);
  }
  if (windows.empty()) return Fail(ErrorKind::kInvalidArgument, "no windows");
  return windows;
}

Result<std::vector<ClientLengths>> ParseClientLengths(std::string_view text) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || document.empty()) {
    return Fail(ErrorKind::kInvalidArgument, "not a JSON object of start seconds");
  }
  std::vector<ClientLengths> lengths;
  for (const auto& [start, distributions] : document.items()) {
    ClientLengths one;
    const Result<double> seconds = ParseNumber(start);
    if (!seconds || !(*seconds >= 0)) {
      return Fail(ErrorKind::kInvalidArgument, "'{}' is no start second", start);
    }
    one.start = *seconds;
    for (const auto& [key, distribution] :
         {std::pair{"input_tokens", &one.input}, {"output_tokens", &one.output}}) {
      if (!distributions.is_object() || !distributions.contains(key) ||
          !distributions[key].is_string()) {
        return Fail(ErrorKind::kInvalidArgument, "\"{}\" has no {}", start, key);
      }
      Result<LengthDistribution> parsed = ParseDistribution(distributions[key].get<std::string>());
      if (!parsed) return Context(parsed.error(), "\"{}\", {}", start, key);
      *distribution = *std::move(parsed);
    }
    lengths.push_back(std::move(one));
  }
  std::sort(lengths.begin(), lengths.end(),
            [](const ClientLengths& a, const ClientLengths& b) { return a.start < b.start; });
  return lengths;
}

Result<std::vector<Client>> LoadClients(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> traces;
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) {
    for (const auto& entry : std::filesystem::directory_iterator(path, code)) {
      const std::string name = entry.path().filename().string();
      if (name.size() > kTraceEnd.size() && name.ends_with(kTraceEnd)) {
        traces.push_back(entry.path());
      }
    }
    std::sort(traces.begin(), traces.end());
  } else {
    traces.push_back(path);
  }
  std::vector<Client> clients;
  for (const std::filesystem::path& trace : traces) {
    Client client;
    client.name = trace.filename().string();
    if (!client.name.ends_with(kTraceEnd)) {
      return Fail(ErrorKind::kInvalidArgument, "'{}' is not called NAME-trace.csv", trace.string());
    }
    client.name.resize(client.name.size() - kTraceEnd.size());
    const std::filesystem::path lengths =
        trace.parent_path() / (client.name + std::string(kDatasetEnd));
    TARE_TRY(const std::string windows_text, ReadFile(trace));
    Result<std::vector<ClientWindow>> windows = ParseClientWindows(windows_text);
    if (!windows) return Context(windows.error(), "{}", trace.string());
    client.windows = *std::move(windows);
    TARE_TRY(const std::string lengths_text, ReadFile(lengths));
    Result<std::vector<ClientLengths>> parsed = ParseClientLengths(lengths_text);
    if (!parsed) return Context(parsed.error(), "{}", lengths.string());
    client.lengths = *std::move(parsed);
    clients.push_back(std::move(client));
  }
  if (clients.empty()) {
    return Fail(ErrorKind::kNotFound, "'{}' holds no NAME-trace.csv with its NAME-dataset.json",
                path.string());
  }
  return clients;
}

Result<Trace> DrawTrace(const std::vector<Client>& clients, const DrawSpec& spec) {
  const double from = ToSeconds(spec.from), to = from + ToSeconds(spec.length);
  const double expected = Expected(clients, from, to);
  if (!(expected > 0)) {
    return FailParam("trace_window", "the clients send nothing between {:g} s and {:g} s", from,
                     to);
  }
  const double scale = spec.rate > 0 ? spec.rate * (to - from) / expected : 1;
  if (expected * scale > kMostRequests) {
    return FailParam("trace_window",
                     "about {:.0f} requests between {:g} s and {:g} s are too many; give a "
                     "shorter --trace-window (like 1h+10m) or a lower --rate",
                     expected * scale, from, to);
  }
  Trace trace;
  for (std::size_t c = 0; c < clients.size(); ++c) {
    const Client& client = clients[c];
    trace.name += (c > 0 ? "+" : "") + client.name;
    Random random(StreamSeed(spec.seed, c));
    for (std::size_t i = 0; i < client.windows.size(); ++i) {
      const ClientWindow& window = client.windows[i];
      const double begin = std::max(from, window.start), end = std::min(to, EndOf(client, i));
      if (window.gaps == ClientWindow::Gaps::kNone || window.rate <= 0 || begin >= end) continue;
      const double rate = window.rate * scale;
      // A random point of the first gap: the window begins in the middle of the client's life.
      double t = begin + Gap(window, random) / rate * random.Uniform();
      for (; t < end; t += Gap(window, random) / rate) {
        const ClientLengths& lengths = LengthsAt(client, t);
        TraceRequest request;
        request.at = FromSeconds(t - from);
        request.input_tokens = lengths.input.At(random.Uniform());
        request.output_tokens = lengths.output.At(random.Uniform());
        trace.requests.push_back(std::move(request));
        if (static_cast<double>(trace.requests.size()) > 4 * kMostRequests) break;
      }
    }
  }
  if (trace.requests.empty()) {
    return FailParam("trace_window", "no request was drawn between {:g} s and {:g} s", from, to);
  }
  std::stable_sort(trace.requests.begin(), trace.requests.end(),
                   [](const TraceRequest& a, const TraceRequest& b) { return a.at < b.at; });
  return trace;
}

}  // namespace tare::load
