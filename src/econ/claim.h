// A published claim, by kind, and its verdict.
//
// Every input is optional: what a publisher left out is itself a finding (verdict unsupported,
// naming what is missing). Figures keep the precision they were written with (econ/published.h).
// Judge is a pure function; docs/CLAIMS.md lists the kinds and their arithmetic.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "econ/device_facts.h"
#include "econ/discounting.h"
#include "econ/model_facts.h"
#include "econ/published.h"

namespace tare::econ {

enum class Verdict { kImpossible, kInconsistent, kUnsupported, kPlausible };
std::string_view ToString(Verdict verdict);

using Figure = std::optional<Published>;

// What runs on what. Sizes can be given instead of names.
struct Subject {
  std::optional<ModelFacts> model;
  Figure parameters;         // instead of a model: total
  Figure active_parameters;  // of a sparse one; total when absent
  std::optional<Precision> precision;
  std::optional<DeviceFacts> device;
  Figure memory;     // of one device, instead of a device
  Figure bandwidth;  // likewise
  Figure compute;    // likewise, FLOP/s
  int devices = 1;
};

// Weights (and what is claimed to be used) against memory.
struct MemoryFitClaim {
  Subject subject;
  Figure used;            // stated memory, all devices together
  Figure context_tokens;  // all sequences together; adds the cache
};
// Tokens a second against the bandwidth and compute roofline.
struct DecodeRateClaim {
  Subject subject;
  Figure tokens_per_second;
  Figure batch;
};
// Time to the first token, or prompt tokens a second, against the compute roofline.
struct PrefillClaim {
  Subject subject;
  Figure prompt_tokens;  // of the whole batch
  Figure seconds;
};
// Use of a link or memory: stated share, and whether it is called a bottleneck.
struct BandwidthUseClaim {
  Figure used;
  Figure peak;
  Figure stated_share;
  bool called_bottleneck = false;
};
// Data moved over a link in a time.
struct LinkTransferClaim {
  std::optional<ModelFacts> model;
  std::optional<Precision> cache;
  Figure context_tokens;
  Figure bytes;  // instead of model, cache and context
  Figure link;   // bytes a second, one direction
  Figure seconds;
  Figure stated_share;
};
struct TrainingClaim {
  Subject subject;
  Figure tokens;
  Figure device_time;  // device-days
};

enum class Direction { kUnstated, kGain, kDrop };
// from -> to, as a percentage or a difference.
struct ChangeClaim {
  Figure from;
  Figure to;
  Figure stated;
  Direction direction = Direction::kUnstated;  // the words used: stated is then a magnitude
  bool lower_is_better = false;                // a gain in latency is a fall
};
struct RatioClaim {
  Figure numerator;
  Figure denominator;
  Figure stated;
};
struct SumClaim {
  std::vector<Figure> parts;
  Figure total;
};
// Percentiles of parts and of the whole.
struct PercentileSumClaim {
  std::vector<Figure> parts;
  Figure total;
};
struct FormulaClaim {
  std::string formula;
  std::vector<std::pair<std::string, Figure>> inputs;
  Figure stated;
  // Other readings tried when the formula does not give the stated value: name, formula.
  std::vector<std::pair<std::string, std::string>> alternatives;
};
struct FormulaRangeClaim {
  std::string formula;
  std::vector<std::pair<std::string, std::pair<Figure, Figure>>> inputs;  // ranges
  Figure stated_low;
  Figure stated_high;
};
// A measured figure against the threshold it is said to meet.
struct TargetClaim {
  Figure reached;
  Figure at_least;
  Figure at_most;
};

struct PresentValueClaim {
  std::vector<Figure> flows;
  Figure outlay;
  Figure rate;
  Figure stated;
  std::optional<Timing> timing;
};
struct BreakEvenClaim {
  Figure fixed_a, variable_a;  // money a year, money a million tokens
  Figure fixed_b, variable_b;
  Figure stated;  // tokens a day
};
struct TokenCostClaim {
  Figure price_per_hour;  // of one device
  Figure devices;
  Figure tokens_per_second;
  Figure utilisation;
  Figure stated;  // money a million tokens
};

// Speeding up a part bounds the whole.
struct AmdahlClaim {
  Figure part_share;
  Figure part_speedup;
  Figure overall_speedup;
};
// Requests in flight = rate x time.
struct LittleClaim {
  Figure rate;
  Figure seconds;
  Figure in_flight;
};
struct F1Claim {
  Figure precision;
  Figure recall;
  Figure stated;
};
struct AccuracyClaim {
  Figure accuracy;
  Figure miss_rate;         // 1 - recall
  Figure false_alarm_rate;  // of the negatives
  Figure prevalence;        // share of positives
};
struct AvailabilityClaim {
  Figure availability;
  Figure downtime;
  Figure period;
};

using ClaimBody = std::variant<MemoryFitClaim, DecodeRateClaim, PrefillClaim, BandwidthUseClaim,
                               LinkTransferClaim, TrainingClaim, ChangeClaim, RatioClaim, SumClaim,
                               PercentileSumClaim, FormulaClaim, FormulaRangeClaim, TargetClaim,
                               PresentValueClaim, BreakEvenClaim, TokenCostClaim, AmdahlClaim,
                               LittleClaim, F1Claim, AccuracyClaim, AvailabilityClaim>;

struct Claim {
  std::string id;
  std::string where;    // where it was published
  std::string says;     // in the publisher's words
  std::string assumes;  // what the claims file adds to make it checkable; empty when nothing
  std::string kind;
  ClaimBody body;
};

struct Judgement {
  Verdict verdict = Verdict::kPlausible;
  std::string arithmetic;  // one readable line
  // How far the claim is from what follows: claimed / computed - 1; nothing when not computable.
  std::optional<double> margin;
};

Judgement Judge(const ClaimBody& body);

// One per kind.
Judgement Judge(const MemoryFitClaim& claim);
Judgement Judge(const DecodeRateClaim& claim);
Judgement Judge(const PrefillClaim& claim);
Judgement Judge(const BandwidthUseClaim& claim);
Judgement Judge(const LinkTransferClaim& claim);
Judgement Judge(const TrainingClaim& claim);
Judgement Judge(const ChangeClaim& claim);
Judgement Judge(const RatioClaim& claim);
Judgement Judge(const SumClaim& claim);
Judgement Judge(const PercentileSumClaim& claim);
Judgement Judge(const FormulaClaim& claim);
Judgement Judge(const FormulaRangeClaim& claim);
Judgement Judge(const TargetClaim& claim);
Judgement Judge(const PresentValueClaim& claim);
Judgement Judge(const BreakEvenClaim& claim);
Judgement Judge(const TokenCostClaim& claim);
Judgement Judge(const AmdahlClaim& claim);
Judgement Judge(const LittleClaim& claim);
Judgement Judge(const F1Claim& claim);
Judgement Judge(const AccuracyClaim& claim);
Judgement Judge(const AvailabilityClaim& claim);

}  // namespace tare::econ
