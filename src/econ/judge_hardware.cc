// Claims against physics: memory, bandwidth, compute, links.
#include <algorithm>
#include <cmath>

#include "econ/compute_cost.h"
#include "econ/judge_common.h"
#include "econ/memory.h"
#include "econ/roofline.h"

namespace tare::econ {
namespace {

// The narrowest weights in wide use; a fit that needs fewer bits is called impossible.
constexpr double kNarrowestBits = 1.58;

double TotalParameters(const Subject& subject) {
  if (subject.model) return CountParameters(*subject.model).total();
  return subject.parameters ? subject.parameters->base() : 0;
}

double ActivePerToken(const Subject& subject) {
  if (subject.model) return MatmulParametersPerToken(*subject.model);
  if (subject.active_parameters) return subject.active_parameters->base();
  return TotalParameters(subject);
}

double DeviceMemory(const Subject& subject) {
  if (subject.memory) return subject.memory->range().high * subject.devices;
  return subject.device ? subject.device->memory_bytes * subject.devices : 0;
}

double DeviceBandwidth(const Subject& subject) {
  if (subject.bandwidth) return subject.bandwidth->range().high * subject.devices;
  return subject.device ? subject.device->bandwidth_bytes_per_second * subject.devices : 0;
}

// The highest peak that could apply: quantised weights may be multiplied in any narrower format.
double PeakCompute(const Subject& subject) {
  if (subject.compute) return subject.compute->range().high * subject.devices;
  if (!subject.device) return 0;
  const DeviceFacts& device = *subject.device;
  double peak = device.bf16_flop_per_second;
  if (!subject.precision || subject.precision->bits <= 8) {
    peak = std::max({peak, device.fp8_flop_per_second, device.int8_op_per_second});
  }
  if (!subject.precision || subject.precision->bits <= 4) {
    peak = std::max(peak, device.fp4_flop_per_second);
  }
  return peak * subject.devices;
}

// Without scales and zero points: the least the weights can take.
double LeastBytes(double parameters, double bits) { return parameters * bits / 8; }

std::string SubjectText(const Subject& subject) {
  return fmt::format("{} parameters", FormatSi(TotalParameters(subject)));
}

Judgement Impossible(std::string arithmetic, double margin) {
  return {Verdict::kImpossible, std::move(arithmetic), margin};
}

// Fit without a stated precision: how many bits a weight may have.
Judgement FitOfUnknownPrecision(const Subject& subject, double bytes, std::string_view what) {
  const double bits = WidestBitsThatFit(TotalParameters(subject), bytes);
  const double margin = RelativeMargin(bytes, LeastBytes(TotalParameters(subject), kNarrowestBits));
  if (bits < kNarrowestBits) {
    return Impossible(fmt::format("{} in {} leaves {:.2g} bits a weight; no format in use is "
                                  "narrower than {}",
                                  SubjectText(subject), Gigabytes(bytes), bits, kNarrowestBits),
                      margin);
  }
  return {Verdict::kUnsupported,
          fmt::format("not stated: precision; {} in {} of {} allow at most {:.3g} bits a weight",
                      SubjectText(subject), Gigabytes(bytes), what, bits),
          std::nullopt};
}

}  // namespace

Judgement Judge(const MemoryFitClaim& claim) {
  const Subject& subject = claim.subject;
  const double parameters = TotalParameters(subject);
  const double device_bytes = DeviceMemory(subject);
  if (auto missing = Missing({{"model or parameters", parameters > 0},
                              {"memory used or a device", claim.used || device_bytes > 0}})) {
    return *missing;
  }
  const double used_high = claim.used ? claim.used->range().high : device_bytes;
  if (claim.used && device_bytes > 0 &&
      claim.used->range().low > device_bytes * (1 + kCeilingTolerance)) {
    return Impossible(fmt::format("{} stated, {} device(s) have {}", claim.used->text(),
                                  subject.devices, Gigabytes(device_bytes)),
                      RelativeMargin(claim.used->base(), device_bytes));
  }
  const double room = device_bytes > 0 ? std::min(used_high, device_bytes) : used_high;
  const char* what = claim.used ? "memory stated" : "device memory";
  if (!subject.precision) return FitOfUnknownPrecision(subject, room, what);

  double least = LeastBytes(parameters, subject.precision->bits);
  std::string parts = fmt::format("{} x {} bits = {}", SubjectText(subject),
                                  subject.precision->bits, Gigabytes(least));
  if (claim.context_tokens && subject.model) {
    const double cache =
        KvBytesPerToken(*subject.model, *FindPrecision("bf16")) * claim.context_tokens->base();
    parts += fmt::format(" and {} of cache for {} tokens", Gigabytes(cache),
                         FormatNumber(claim.context_tokens->base()));
    least += cache;
  }
  const double margin = RelativeMargin(room, least);
  if (room * (1 + kCeilingTolerance) < least) {
    return Impossible(fmt::format("{} do not fit {} of {}: {:.3g} x too small", parts,
                                  Gigabytes(room), what, least / room),
                      margin);
  }
  return {
      Verdict::kPlausible,
      fmt::format("{}; {} of {} leave {}", parts, Gigabytes(room), what, Percent(1 - least / room)),
      margin};
}

Judgement Judge(const DecodeRateClaim& claim) {
  const Subject& subject = claim.subject;
  const double active = ActivePerToken(subject);
  const double bandwidth = DeviceBandwidth(subject);
  const double compute = PeakCompute(subject);
  if (auto missing = Missing({{"model or parameters", active > 0},
                              {"tokens per second", claim.tokens_per_second.has_value()},
                              {"device or bandwidth", bandwidth > 0},
                              {"precision", subject.precision.has_value()}})) {
    return *missing;
  }
  const double bits = subject.precision->bits;
  const double memory = DeviceMemory(subject);
  const double total_bytes = LeastBytes(TotalParameters(subject), bits);
  if (memory > 0 && total_bytes > memory * (1 + kCeilingTolerance)) {
    return Impossible(fmt::format("{} x {} bits = {} do not fit {} device(s) with {}, at any speed",
                                  SubjectText(subject), bits, Gigabytes(total_bytes),
                                  subject.devices, Gigabytes(memory)),
                      RelativeMargin(memory, total_bytes));
  }
  const double rate_low = claim.tokens_per_second->range().low;
  const double rate = claim.tokens_per_second->base();
  const double bytes = LeastBytes(active, bits);
  const double one = bandwidth / bytes;  // sequential tokens a second
  const double most_computed = compute > 0 ? compute / (2 * active) : INFINITY;
  if (rate_low > most_computed * (1 + kCeilingTolerance)) {
    return Impossible(fmt::format("2 FLOP x {} weights a token at {}FLOP/s: at most {} tokens/s at "
                                  "any batch, {} claimed",
                                  FormatSi(active), FormatSi(compute), FormatNumber(most_computed),
                                  FormatNumber(rate)),
                      RelativeMargin(rate, most_computed));
  }
  const std::string per_token =
      fmt::format("{}B/s / ({} weights x {} bits) = {} tokens/s for one sequence",
                  FormatSi(bandwidth), FormatSi(active), bits, FormatNumber(one));
  if (!claim.batch) {
    const double needed = std::ceil(rate / one);
    if (needed <= 1) {
      return {Verdict::kPlausible,
              fmt::format("{}; {} claimed is {} of it", per_token, FormatNumber(rate),
                          Percent(rate / one)),
              RelativeMargin(rate, one)};
    }
    return {Verdict::kUnsupported,
            fmt::format("not stated: batch; {}, so {} need at least {} at once", per_token,
                        FormatNumber(rate), FormatNumber(needed)),
            RelativeMargin(rate, one)};
  }
  const double batch = claim.batch->base();
  const double ceiling = std::min(one * batch, most_computed);
  const double margin = RelativeMargin(rate, ceiling);
  const std::string line = fmt::format("{}; x {} = {}, {} claimed", per_token, FormatNumber(batch),
                                       FormatNumber(ceiling), FormatNumber(rate));
  if (rate_low > ceiling * (1 + kCeilingTolerance)) {
    return Impossible(line + fmt::format(": {:.3g} x the roofline", rate / ceiling), margin);
  }
  return {Verdict::kPlausible, line + fmt::format(" ({} of it)", Percent(rate / ceiling)), margin};
}

Judgement Judge(const PrefillClaim& claim) {
  const Subject& subject = claim.subject;
  const double active = ActivePerToken(subject);
  const double compute = PeakCompute(subject);
  if (auto missing = Missing({{"model or parameters", active > 0},
                              {"device or compute", compute > 0},
                              {"prompt tokens", claim.prompt_tokens.has_value()},
                              {"time", claim.seconds.has_value()}})) {
    return *missing;
  }
  // The head is computed for one position only.
  double weights = active;
  if (subject.model) {
    const ParameterCounts counts = CountParameters(*subject.model);
    weights -= subject.model->tied_embeddings ? counts.input_embedding : counts.output_head;
  }
  const double flop = 2 * weights * claim.prompt_tokens->range().low;
  const double least = flop / compute;
  const double claimed = claim.seconds->range().high;
  const double margin = RelativeMargin(claim.seconds->base(), least);
  const std::string line = fmt::format(
      "2 x {} weights x {} tokens = {}FLOP at {}FLOP/s take at least {:.4g} s, {} stated",
      FormatSi(weights), FormatNumber(claim.prompt_tokens->base()), FormatSi(flop),
      FormatSi(compute), least, claim.seconds->text());
  if (claimed * (1 + kCeilingTolerance) < least) {
    return Impossible(line + fmt::format(": {:.3g} x too fast", least / claimed), margin);
  }
  return {Verdict::kPlausible, line + fmt::format(" ({} of the peak)", Percent(least / claimed)),
          margin};
}

Judgement Judge(const BandwidthUseClaim& claim) {
  if (auto missing =
          Missing({{"rate used", claim.used.has_value()}, {"peak", claim.peak.has_value()}})) {
    return *missing;
  }
  const Interval share = claim.used->range() / claim.peak->range();
  const double exact = claim.used->base() / claim.peak->base();
  const std::string line =
      fmt::format("{} of {} = {}", claim.used->text(), claim.peak->text(), Percent(exact));
  if (share.low > 1 + kCeilingTolerance) {
    return Impossible(line + ": above the peak", exact - 1);
  }
  if (claim.stated_share && !share.Overlaps(claim.stated_share->range())) {
    return {Verdict::kInconsistent, line + ", not " + claim.stated_share->text(),
            RelativeMargin(claim.stated_share->base(), exact)};
  }
  if (claim.called_bottleneck && share.high < 0.5) {
    return {Verdict::kInconsistent, line + " of the link is no contention", exact - 1};
  }
  return {Verdict::kPlausible, line, exact - 1};
}

Judgement Judge(const LinkTransferClaim& claim) {
  const bool from_model = claim.model && claim.cache && claim.context_tokens;
  if (auto missing =
          Missing({{"bytes, or model, cache precision and context", claim.bytes || from_model},
                   {"link", claim.link.has_value()},
                   {"time", claim.seconds.has_value()}})) {
    return *missing;
  }
  const Interval bytes = claim.bytes ? claim.bytes->range()
                                     : Interval::Of(KvBytesPerToken(*claim.model, *claim.cache)) *
                                           claim.context_tokens->range();
  const Interval used = bytes / (claim.link->range() * claim.seconds->range());
  const std::string line =
      fmt::format("{} in {} over {} use {} of the link", Gigabytes(bytes.Middle()),
                  claim.seconds->text(), claim.link->text(), Percent(used.Middle()));
  if (used.low > 1 + kCeilingTolerance) {
    return Impossible(line + ": more than it can carry", used.Middle() - 1);
  }
  if (!claim.stated_share) return {Verdict::kPlausible, line, used.Middle() - 1};
  const double margin = RelativeMargin(claim.stated_share->base(), used.Middle());
  // Protocol overhead can raise a counter by a few per cent: only a clear gap is a contradiction.
  if (!used.Widened(0.05).Overlaps(claim.stated_share->range())) {
    return {Verdict::kInconsistent, line + ", not " + claim.stated_share->text(), margin};
  }
  return {Verdict::kPlausible, line + ", as stated", margin};
}

Judgement Judge(const TrainingClaim& claim) {
  const double active = ActivePerToken(claim.subject);
  const double compute = PeakCompute(claim.subject);
  if (auto missing = Missing({{"model or parameters", active > 0},
                              {"training tokens", claim.tokens.has_value()},
                              {"device or compute", compute > 0},
                              {"device-days", claim.device_time.has_value()}})) {
    return *missing;
  }
  const double days = claim.device_time->base() / 86400;
  const double utilisation =
      ImpliedTrainingUtilisation(active, claim.tokens->range().low, compute, days);
  const std::string line =
      fmt::format("6 x {} weights x {} tokens in {} device-days at {}FLOP/s use {} of the peak",
                  FormatSi(active), FormatSi(claim.tokens->base()), FormatNumber(days),
                  FormatSi(compute), Percent(utilisation));
  if (utilisation > 1 + kCeilingTolerance) return Impossible(line, utilisation - 1);
  return {Verdict::kPlausible, line, utilisation - 1};
}

}  // namespace tare::econ
