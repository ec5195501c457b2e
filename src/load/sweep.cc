#include "load/sweep.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/text.h"
#include "base/units.h"
#include "load/compare.h"
#include "load/local_server.h"
#include "load/probe.h"

namespace tare::load {
namespace {

// What a precision is judged by (SPEC LT5): throughput, and the drift of the latencies.
constexpr const char* kJudged[] = {"output_tokens_per_s", "ttft_p50_s", "tpot_p50_s", "e2e_p99_s"};

std::vector<SweepPoint::Against> AgainstFirst(const store::RunRecord& first,
                                              const store::RunRecord& record) {
  std::vector<SweepPoint::Against> against;
  for (const Difference& d : Compare(first, record)) {
    if (std::find(std::begin(kJudged), std::end(kJudged), d.metric) == std::end(kJudged)) continue;
    against.push_back({d.metric, d.ratio, d.low, d.high, d.verdict});
  }
  return against;
}

// Where a variant's server writes: beside the results, or where temporary files go.
std::filesystem::path LogOf(const LoadOptions& base, const SweepVariant& variant) {
  if (!base.out_dir.empty()) {
    std::error_code exists;  // what cannot be made is said when the log is opened
    std::filesystem::create_directories(base.out_dir, exists);
    return base.out_dir / (variant.label + "-server.log");
  }
  return std::filesystem::temp_directory_path() /
         fmt::format("tare-sweep-{}-{}.log", ::getpid(), variant.label);
}

// The points of one variant; what it could not measure is an error.
Status RunVariant(const LoadOptions& base, const std::vector<int>& users, std::size_t number,
                  const SweepHooks& hooks, SweepResult& result) {
  SweepVariant& variant = result.variants[number];
  LoadOptions options = base;
  std::optional<LocalServer> server;
  if (!variant.command.empty()) {
    if (hooks.say) hooks.say(variant.label + ": the server is starting");
    LocalServerOptions start;
    start.command = variant.command;
    start.log = LogOf(base, variant);
    start.ready_timeout = std::chrono::minutes(10);  // a large model is read from a slow disk
    start.cancelled = hooks.cancelled;
    TARE_TRY(LocalServer started, LocalServer::Start(start));
    server.emplace(std::move(started));
    variant.url = server->url();
    options.server_pid = server->pid();
    options.target_facts["command"] = variant.command;
  }
  options.url = variant.url;
  if (!variant.model.empty()) options.model = variant.model;
  options.target_facts["variant"] = variant.label;
  for (const int n : users) {
    LoadOptions one = options;
    one.arrival.kind = ArrivalSpec::Kind::kClosed;
    one.arrival.users = n;
    const bool several = result.variants.size() > 1;
    one.name = fmt::format("{}{}{}{}users-{}", base.name, base.name.empty() ? "" : "-",
                           several ? variant.label : "", several ? "-" : "", n);
    std::replace(one.name.begin(), one.name.end(), '/', '_');
    if (!base.out_dir.empty()) one.out_dir = base.out_dir / one.name;
    // Prompts of their own for each point: the cache must not know them from the point before.
    if (base.workload.seed != 0) {
      one.workload.seed = base.workload.seed + static_cast<std::uint64_t>(n) * 1'000'003;
    }
    TARE_TRY(store::RunRecord record, hooks.run ? hooks.run(one) : RunLoad(one, nullptr));
    if (hooks.keep) {
      TARE_TRY(record.id, hooks.keep(record));
    }
    SweepPoint point;
    point.variant = number;
    point.users = n;
    point.per_user = record.summary.output_tokens_per_s / n;
    for (const SweepPoint& earlier : result.points) {
      if (number > 0 && earlier.variant == 0 && earlier.users == n) {
        point.against = AgainstFirst(earlier.record, record);
      }
    }
    if (hooks.say) {
      hooks.say(fmt::format("{}, {} users: {:.2f} requests/s, {:.0f} tokens/s{}", variant.label, n,
                            record.summary.requests_per_s, record.summary.output_tokens_per_s,
                            record.valid ? "" : "  INVALID"));
    }
    point.record = std::move(record);
    result.points.push_back(std::move(point));
    if (hooks.cancelled && hooks.cancelled()) {
      return Fail(ErrorKind::kCancelled, "the sweep was ended early");
    }
  }
  if (server) {
    TARE_RETURN_IF_ERROR(server->Stop());
    std::error_code kept;
    if (base.out_dir.empty()) std::filesystem::remove(LogOf(base, variant), kept);
  }
  return {};
}

}  // namespace

Result<SweepVariant> ParseVariant(const std::string& text) {
  SweepVariant variant;
  const std::size_t scheme = text.find("://");
  const std::size_t equals = text.find('=');
  const bool labelled = equals != std::string::npos && equals < scheme;
  // A bare URL is its own label, without what all of them begin with.
  variant.label = labelled                      ? text.substr(0, equals)
                  : scheme != std::string::npos ? text.substr(scheme + 3)
                                                : text;
  variant.url = labelled ? text.substr(equals + 1) : text;
  if (variant.label.empty() || variant.url.empty()) {
    return FailParam("against", "--against '{}' is not understood; write NAME=URL", text);
  }
  TARE_TRY([[maybe_unused]] const net::Url url, ParseTargetUrl(variant.url));
  return variant;
}

Result<std::vector<SweepVariant>> ServeVariants(const std::string& program,
                                                const std::string& model,
                                                const std::string& dtypes) {
  std::vector<SweepVariant> variants;
  for (const std::string_view item : Split(dtypes, ',')) {
    const std::string dtype(Trim(item));
    if (dtype.empty()) {
      return FailParam("serve_dtype", "--serve-dtype '{}' is not understood; write bf16,int8,int4",
                       dtypes);
    }
    SweepVariant variant;
    variant.label = dtype;
    variant.command = {program, "serve", model, "--port", "0", "--dtype", dtype};
    variants.push_back(std::move(variant));
  }
  return variants;
}

Result<std::vector<int>> ParseUsers(const std::string& text) {
  std::vector<int> users;
  for (const std::string_view item : Split(text, ',')) {
    const Result<std::int64_t> n = ParseInteger(Trim(item));
    if (!n || *n < 1 || *n > 1'000'000) {
      return FailParam("sweep", "--sweep '{}' is not understood; write 1,2,4,8", text);
    }
    users.push_back(static_cast<int>(*n));
  }
  return users;
}

bool SweepResult::valid() const {
  return failed.empty() && std::all_of(points.begin(), points.end(),
                                       [](const SweepPoint& p) { return p.record.valid; });
}

void MarkFront(std::vector<SweepPoint>& points) {
  for (SweepPoint& point : points) {
    const double total = point.record.summary.output_tokens_per_s;
    point.on_front = point.record.valid &&
                     std::none_of(points.begin(), points.end(), [&](const SweepPoint& other) {
                       const double other_total = other.record.summary.output_tokens_per_s;
                       return other.record.valid && other.per_user >= point.per_user &&
                              other_total >= total &&
                              (other.per_user > point.per_user || other_total > total);
                     });
  }
}

Result<SweepResult> RunSweep(const LoadOptions& options, const std::vector<int>& users,
                             std::vector<SweepVariant> variants, const SweepHooks& hooks) {
  if (users.empty() || variants.empty()) {
    return FailParam("sweep", "a sweep needs numbers of users and a server");
  }
  SweepResult result;
  result.variants = std::move(variants);
  Error last;
  for (std::size_t i = 0; i < result.variants.size(); ++i) {
    const Status ran = RunVariant(options, users, i, hooks, result);
    if (ran) continue;
    last = ran.error();
    result.failed.push_back(result.variants[i].label + ": " + last.message);
    if (hooks.say) hooks.say(result.failed.back());
    if (last.kind == ErrorKind::kCancelled) break;
  }
  if (result.points.empty()) return tl::unexpected(last);
  MarkFront(result.points);
  return result;
}

}  // namespace tare::load
