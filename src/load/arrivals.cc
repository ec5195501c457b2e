#include "load/arrivals.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/units.h"

namespace tare::load {
namespace {

const char* Name(ArrivalSpec::Kind kind) {
  switch (kind) {
    case ArrivalSpec::Kind::kClosed:
      return "closed";
    case ArrivalSpec::Kind::kConstant:
      return "constant";
    case ArrivalSpec::Kind::kPoisson:
      return "poisson";
    case ArrivalSpec::Kind::kGamma:
      return "gamma";
    case ArrivalSpec::Kind::kTrace:
      return "trace";
  }
  return "unknown";
}

bool HasBursts(const ArrivalSpec& spec) {
  return spec.burst_factor != 1 && spec.burst_for > Nanos(0) && spec.burst_every > Nanos(0);
}

// The rate at `t` seconds, its slope there, and how long (s) that form holds.
struct RatePiece {
  double rate = 0, slope = 0, until = 0;
};

RatePiece PieceAt(const ArrivalSpec& spec, double t) {
  constexpr double kForever = 1e18;
  if (spec.ramp_over > Nanos(0)) {
    const double over = ToSeconds(spec.ramp_over);
    const double slope = (spec.ramp_to - spec.rate) / over;
    if (t < over) return {spec.rate + slope * t, slope, over};
    return {spec.ramp_to, 0, kForever};
  }
  if (HasBursts(spec)) {
    const double every = ToSeconds(spec.burst_every);
    const double length = ToSeconds(spec.burst_for);
    // The first burst comes after a whole quiet period, so that there is a steady state before it.
    const double cycle = std::floor(t / every);
    const double start = cycle * every;
    if (cycle >= 1 && t < start + length) return {spec.rate * spec.burst_factor, 0, start + length};
    return {spec.rate, 0, start + every};
  }
  return {spec.rate, 0, kForever};
}

}  // namespace

Status CheckArrivals(const ArrivalSpec& spec) {
  if (spec.think_time < Nanos(0)) return FailParam("think_time", "--think-time is negative");
  if (spec.kind == ArrivalSpec::Kind::kClosed) {
    if (spec.users < 1 || spec.users > 1'000'000) {
      return FailParam("users", "--users {} is out of range; give 1 to 1000000", spec.users);
    }
    return {};
  }
  if (spec.kind == ArrivalSpec::Kind::kTrace) {
    if (!(spec.speedup > 0) || spec.speedup > 1e6) {
      return FailParam("speedup", "--speedup {} is out of range; 2 replays twice as fast",
                       spec.speedup);
    }
    return {};
  }
  if (!(spec.rate > 0) || spec.rate > 1e6) {
    return FailParam("rate", "--rate {} is out of range; give requests per second above 0",
                     spec.rate);
  }
  if (spec.kind == ArrivalSpec::Kind::kGamma && (!(spec.cv > 0) || spec.cv > 100)) {
    return FailParam("cv",
                     "gamma:{} is out of range; the coefficient of variation is above 0, at "
                     "most 100 (1 is Poisson, real traffic has 3 to 15)",
                     spec.cv);
  }
  if (HasBursts(spec)) {
    if (!(spec.burst_factor > 0) || spec.burst_for >= spec.burst_every) {
      return FailParam("burst",
                       "a burst needs a factor above 0 and must be shorter than its period "
                       "(10x:5s/30s: ten times the rate for 5 s, every 30 s)");
    }
    if (spec.ramp_over > Nanos(0)) {
      return FailParam("burst", "--burst and --ramp cannot be combined");
    }
  }
  if (spec.ramp_over > Nanos(0) && !(spec.ramp_to > 0)) {
    return FailParam("ramp", "--ramp needs a final rate above 0 (50/60s: up to 50 in 60 s)");
  }
  return {};
}

Status ParseArrival(std::string_view text, ArrivalSpec& spec) {
  if (text == "poisson") {
    spec.kind = ArrivalSpec::Kind::kPoisson;
  } else if (text == "constant") {
    spec.kind = ArrivalSpec::Kind::kConstant;
  } else if (text.substr(0, 6) == "gamma:") {
    const Result<double> cv = ParseNumber(text.substr(6));
    if (!cv) return Context(cv.error(), "--arrival {}", text);
    spec.kind = ArrivalSpec::Kind::kGamma;
    spec.cv = *cv;
  } else if (text.substr(0, 6) == "trace:" && text.size() > 6) {
    spec.kind = ArrivalSpec::Kind::kTrace;
    spec.trace = std::string(text.substr(6));
  } else {
    return FailParam("arrival",
                     "--arrival '{}' is not known; use poisson, constant, gamma:CV or "
                     "trace:FILE",
                     text);
  }
  return {};
}

nlohmann::json Describe(const ArrivalSpec& spec) {
  nlohmann::json text = {{"kind", Name(spec.kind)}};
  if (spec.kind == ArrivalSpec::Kind::kClosed) {
    text["users"] = spec.users;
    text["think_time_s"] = ToSeconds(spec.think_time);
    if (spec.think_exponential) text["think_time_is"] = "exponential";
    return text;
  }
  if (spec.kind == ArrivalSpec::Kind::kTrace) {
    text["trace"] = spec.trace.filename().string();
    text["speedup"] = spec.speedup;
    if (spec.trace_from > Nanos(0)) text["from_s"] = ToSeconds(spec.trace_from);
    if (spec.trace_length > Nanos(0)) text["length_s"] = ToSeconds(spec.trace_length);
    return text;
  }
  text["rate_per_s"] = spec.rate;
  if (spec.kind == ArrivalSpec::Kind::kGamma) text["cv"] = spec.cv;
  if (HasBursts(spec)) {
    text["burst"] = {{"factor", spec.burst_factor},
                     {"for_s", ToSeconds(spec.burst_for)},
                     {"every_s", ToSeconds(spec.burst_every)}};
  }
  if (spec.ramp_over > Nanos(0)) {
    text["ramp"] = {{"to_per_s", spec.ramp_to}, {"over_s", ToSeconds(spec.ramp_over)}};
  }
  return text;
}

double RateAt(const ArrivalSpec& spec, Nanos at) {
  const double t = ToSeconds(at);
  const RatePiece piece = PieceAt(spec, t);
  return piece.rate;
}

ArrivalSchedule::ArrivalSchedule(const ArrivalSpec& spec, std::uint64_t seed)
    : spec_(spec), random_(StreamSeed(seed, 0xa441)) {
  TARE_CHECK(spec.kind != ArrivalSpec::Kind::kClosed && spec.kind != ArrivalSpec::Kind::kTrace);
}

double ArrivalSchedule::Gap() {
  switch (spec_.kind) {
    case ArrivalSpec::Kind::kPoisson:
      return random_.Exponential();
    case ArrivalSpec::Kind::kGamma: {
      const double shape = 1 / (spec_.cv * spec_.cv);
      return random_.Gamma(shape) / shape;
    }
    default:
      return 1;
  }
}

Nanos ArrivalSchedule::Next() {
  double work = Gap();
  if (first_ && spec_.kind == ArrivalSpec::Kind::kConstant) work = 0;
  first_ = false;
  // Spend `work` expected arrivals along the rate curve.
  while (work > 0) {
    const RatePiece piece = PieceAt(spec_, seconds_);
    const double length = piece.until - seconds_;
    const double whole = piece.rate * length + piece.slope * length * length / 2;
    if (whole < work) {
      work -= whole;
      seconds_ = piece.until;
      continue;
    }
    // rate·d + slope·d²/2 = work, in the form that stays exact for a small slope.
    const double root = std::sqrt(std::max(0.0, piece.rate * piece.rate + 2 * piece.slope * work));
    seconds_ += 2 * work / (piece.rate + root);
    work = 0;
  }
  return FromSeconds(std::min(seconds_, 9e9));
}

}  // namespace tare::load
