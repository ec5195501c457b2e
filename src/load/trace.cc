#include "load/trace.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/files.h"
#include "base/rfc3339.h"
#include "base/text.h"
#include "base/units.h"
#include "load/random.h"
#include "load/servegen.h"
#include "load/words.h"

namespace tare::load {
namespace {

using nlohmann::json;

constexpr int kMostTokens = 10'000'000;

Error LineError(const std::string& name, std::size_t line, std::string_view what) {
  return Error{ErrorKind::kInvalidArgument, fmt::format("{}:{}: {}", name, line, what), {}};
}

Result<int> TokenCount(std::string_view text) {
  TARE_TRY(const std::int64_t value, ParseInteger(Trim(text)));
  if (value < 0 || value > kMostTokens) {
    return Fail(ErrorKind::kInvalidArgument, "{} tokens is out of range", value);
  }
  return static_cast<int>(value);
}

Status ParseAzureLine(std::string_view line, Nanos& at, TraceRequest& request) {
  const std::vector<std::string_view> cells = Split(line, ',');
  if (cells.size() != 3) {
    return Fail(ErrorKind::kInvalidArgument,
                "three columns are needed: TIMESTAMP,ContextTokens,GeneratedTokens");
  }
  std::string time(Trim(cells[0]));
  // "2023-11-16 18:15:46.6805900", in UTC though it does not say so; some have an offset.
  if (time.find('+') == std::string::npos && (time.empty() || time.back() != 'Z')) time += 'Z';
  TARE_TRY(const auto when, ParseRfc3339(time));
  at = when.time_since_epoch();
  TARE_TRY(request.input_tokens, TokenCount(cells[1]));
  TARE_TRY(request.output_tokens, TokenCount(cells[2]));
  return {};
}

Status ParseMooncakeLine(std::string_view text, Nanos& at, TraceRequest& request) {
  const json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return Fail(ErrorKind::kInvalidArgument, "not a JSON object");
  const auto number = [&](const char* key) -> Result<double> {
    const auto it = line.find(key);
    if (it == line.end() || !it->is_number()) {
      return Fail(ErrorKind::kInvalidArgument, "\"{}\" is not a number", key);
    }
    return it->get<double>();
  };
  TARE_TRY(const double millis, number("timestamp"));
  TARE_TRY(const double input, number("input_length"));
  TARE_TRY(const double output, number("output_length"));
  if (!(millis >= 0 && millis < 1e13)) {
    return Fail(ErrorKind::kInvalidArgument, "\"timestamp\" {} is out of range", millis);
  }
  if (!(input >= 0 && input <= kMostTokens && output >= 0 && output <= kMostTokens)) {
    return Fail(ErrorKind::kInvalidArgument, "a length is out of range");
  }
  at = FromSeconds(millis / 1000);
  request.input_tokens = static_cast<int>(input);
  request.output_tokens = static_cast<int>(output);
  if (const auto ids = line.find("hash_ids"); ids != line.end() && ids->is_array()) {
    for (const json& id : *ids) {
      if (!id.is_number_unsigned()) {
        return Fail(ErrorKind::kInvalidArgument, "\"hash_ids\" holds something other than ids");
      }
      request.blocks.push_back(id.get<std::uint64_t>());
    }
  }
  return {};
}

class TracePrompts final : public PromptSource {
 public:
  TracePrompts(std::shared_ptr<const Trace> trace, std::uint64_t seed, TokenCalibration calibration,
               int max_input, int max_output)
      : trace_(std::move(trace)),
        seed_(seed),
        calibration_(std::move(calibration)),
        max_input_(max_input),
        max_output_(max_output) {
    if (calibration_.words.empty()) {
      calibration_.words.assign(CommonWords().begin(), CommonWords().end());
    }
  }

  Prompt Make(std::uint64_t index) const override {
    const TraceRequest& request = trace_->requests[index % trace_->requests.size()];
    Prompt prompt;
    prompt.input_tokens = Cut(request.input_tokens, max_input_);
    prompt.output_tokens = std::max(1, Cut(request.output_tokens, max_output_));
    int words = WordsFor(std::max(1, prompt.input_tokens - calibration_.overhead));
    const int block_words = WordsFor(kTraceBlockTokens);
    prompt.content_json.assign(1, '"');
    for (std::size_t block = 0; words > 0; ++block) {
      // The last block of a prompt is as long as what is left, and beyond the ids nothing is
      // shared.
      const std::uint64_t stream = block < request.blocks.size()
                                       ? StreamSeed(seed_, request.blocks[block])
                                       : StreamSeed(StreamSeed(~seed_, index), block);
      if (block > 0) prompt.content_json += ' ';
      prompt.content_json += MakeWords(calibration_.words, stream, std::min(words, block_words));
      words -= block_words;
    }
    prompt.content_json += '"';
    return prompt;
  }

  json Describe() const override {
    return {{"kind", "trace"},
            {"file", trace_->name},
            {"requests", trace_->requests.size()},
            {"max_input_tokens", max_input_},
            {"max_output_tokens", max_output_},
            {"ideal_prefix_hit_rate", trace_->ideal_prefix_hit_rate()},
            {"lengths_from", calibration_.how}};
  }

 private:
  static int Cut(int tokens, int limit) { return limit > 0 ? std::min(tokens, limit) : tokens; }
  int WordsFor(int tokens) const {
    return std::max(1, static_cast<int>(std::lround(tokens / calibration_.tokens_per_word)));
  }

  std::shared_ptr<const Trace> trace_;
  std::uint64_t seed_;
  TokenCalibration calibration_;
  int max_input_, max_output_;
};

}  // namespace

double Trace::mean_rate() const {
  if (requests.size() < 2) return 0;
  const double span = ToSeconds(requests.back().at - requests.front().at);
  return span > 0 ? static_cast<double>(requests.size() - 1) / span : 0;
}

double Trace::gap_cv() const {
  if (requests.size() < 3) return 0;
  double sum = 0, squares = 0;
  for (std::size_t i = 1; i < requests.size(); ++i) {
    const double gap = ToSeconds(requests[i].at - requests[i - 1].at);
    sum += gap;
    squares += gap * gap;
  }
  const auto n = static_cast<double>(requests.size() - 1);
  const double mean = sum / n;
  return mean > 0 ? std::sqrt(std::max(0.0, squares / n - mean * mean)) / mean : 0;
}

double Trace::ideal_prefix_hit_rate() const {
  std::unordered_set<std::uint64_t> seen;
  double hit = 0, all = 0;
  for (const TraceRequest& request : requests) {
    all += request.input_tokens;
    bool prefix = true;
    int left = request.input_tokens;
    for (const std::uint64_t block : request.blocks) {
      const int size = std::min(left, kTraceBlockTokens);
      prefix = prefix && seen.contains(block);
      if (prefix) hit += size;
      seen.insert(block);
      left -= size;
    }
  }
  return all > 0 ? hit / all : 0;
}

Result<Trace> ParseTrace(std::string_view content, std::string name) {
  Trace trace;
  trace.name = std::move(name);
  if (content.substr(0, 3) == "\xef\xbb\xbf") content.remove_prefix(3);
  std::size_t number = 0;
  bool azure = false;
  std::vector<Nanos> times;
  for (const std::string_view raw : Split(content, '\n')) {
    ++number;
    const std::string_view line = Trim(raw);
    if (line.empty()) continue;
    if (times.empty() && line.substr(0, 9) == "TIMESTAMP") {
      azure = true;
      continue;
    }
    Nanos at{0};
    TraceRequest request;
    const Status read = azure || line.front() != '{' ? ParseAzureLine(line, at, request)
                                                     : ParseMooncakeLine(line, at, request);
    if (!read) return tl::unexpected(LineError(trace.name, number, read.error().message));
    request.at = at;
    times.push_back(at);
    trace.requests.push_back(std::move(request));
  }
  if (trace.requests.empty()) {
    return Fail(ErrorKind::kInvalidArgument, "trace '{}' holds no requests", trace.name);
  }
  std::stable_sort(trace.requests.begin(), trace.requests.end(),
                   [](const TraceRequest& a, const TraceRequest& b) { return a.at < b.at; });
  const Nanos first = trace.requests.front().at;
  for (TraceRequest& request : trace.requests) request.at -= first;
  return trace;
}

std::string FormatTrace(const Trace& trace) {
  std::string out;
  for (const TraceRequest& request : trace.requests) {
    json line = {{"timestamp", static_cast<double>(request.at.count()) / 1e6},
                 {"input_length", request.input_tokens},
                 {"output_length", request.output_tokens}};
    if (!request.blocks.empty()) line["hash_ids"] = request.blocks;
    out += line.dump() + "\n";
  }
  return out;
}

Result<Trace> LoadTrace(const std::filesystem::path& path) {
  TARE_TRY(const std::string content, ReadFile(path));
  return ParseTrace(content, path.filename().string());
}

Result<Trace> CutTrace(Trace trace, Nanos from, Nanos length) {
  std::vector<TraceRequest> kept;
  for (TraceRequest& request : trace.requests) {
    if (request.at < from || (length > Nanos(0) && request.at >= from + length)) continue;
    request.at -= from;
    kept.push_back(std::move(request));
  }
  if (kept.empty()) {
    return FailParam("trace_window",
                     "trace '{}' has no requests in that window; it is {:.0f} s long", trace.name,
                     trace.requests.empty() ? 0 : ToSeconds(trace.requests.back().at));
  }
  trace.requests = std::move(kept);
  return trace;
}

Result<Trace> LoadTrace(const ArrivalSpec& spec, std::uint64_t seed) {
  std::error_code code;
  const std::string name = spec.trace.filename().string();
  if (std::filesystem::is_directory(spec.trace, code) || name.ends_with("-trace.csv")) {
    TARE_TRY(const std::vector<Client> clients, LoadClients(spec.trace));
    DrawSpec draw;
    draw.from = spec.trace_from;
    draw.length = spec.trace_length;
    if (draw.length <= Nanos(0)) {
      const std::vector<ClientWindow>& windows = clients.front().windows;
      draw.length = FromSeconds(windows.back().start + 600) - draw.from;
    }
    draw.rate = spec.rate;
    draw.seed = seed;
    return DrawTrace(clients, draw);
  }
  TARE_TRY(Trace trace, LoadTrace(spec.trace));
  if (spec.trace_from == Nanos(0) && spec.trace_length == Nanos(0)) return trace;
  return CutTrace(std::move(trace), spec.trace_from, spec.trace_length);
}

std::unique_ptr<PromptSource> MakeTracePrompts(std::shared_ptr<const Trace> trace,
                                               std::uint64_t seed, TokenCalibration calibration,
                                               int max_input, int max_output) {
  return std::make_unique<TracePrompts>(std::move(trace), seed, std::move(calibration), max_input,
                                        max_output);
}

Result<PromptsAndTrace> MakePrompts(const ArrivalSpec& arrival, const WorkloadSpec& workload,
                                    const TokenCalibration& calibration) {
  PromptsAndTrace made;
  if (arrival.kind == ArrivalSpec::Kind::kTrace) {
    TARE_TRY(Trace loaded, LoadTrace(arrival, workload.seed));
    made.trace = std::make_shared<const Trace>(std::move(loaded));
    made.prompts = MakeTracePrompts(made.trace, workload.seed, calibration,
                                    workload.max_input_tokens, workload.max_output_tokens);
  } else if (!workload.dataset.empty()) {
    TARE_TRY(made.prompts, LoadDataset(workload));
  } else {
    made.prompts = MakeSyntheticPrompts(workload, calibration);
  }
  return made;
}

}  // namespace tare::load
