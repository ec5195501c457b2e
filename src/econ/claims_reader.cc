#include "econ/claims_reader.h"

#include <functional>
#include <map>
#include <set>

#include "base/text.h"

namespace tare::econ {
namespace {

using config::Value;

// An optional figure whose unit must be a multiple of `unit`; empty accepts any unit.
Figure ReadFigure(const Value& value, std::string_view unit) {
  if (!value.present()) return std::nullopt;
  const std::string text = value.String();
  if (text.empty()) return std::nullopt;
  Result<Published> figure = ParsePublished(text);
  if (!figure) {
    value.AddError("{}", figure.error().message);
    return std::nullopt;
  }
  if (!unit.empty()) {
    if (auto checked = ParseIn(fmt::format("1 {}", figure->unit), unit, figure->currency);
        !checked) {
      value.AddError("'{}' is not a quantity in {}", text, unit);
      return std::nullopt;
    }
  }
  return *std::move(figure);
}

// A plain number, a percentage or a factor.
Figure ReadPlain(const Value& value) { return ReadFigure(value, "1"); }

std::vector<Figure> ReadFigures(const Value& list) {
  std::vector<Figure> figures;
  for (const Value& item : list.ListOrEmpty()) figures.push_back(ReadFigure(item, ""));
  return figures;
}

std::optional<Precision> ReadPrecision(const Value& value) {
  if (!value.present()) return std::nullopt;
  const std::string name = value.String();
  std::optional<Precision> precision = FindPrecision(name);
  if (!precision) {
    const std::vector<std::string> names = PrecisionNames();
    value.AddError("unknown precision '{}'; there are {}", name, fmt::join(names, ", "));
  }
  return precision;
}

class Reader {
 public:
  explicit Reader(const Catalog& catalog) : catalog_(catalog) {}

  std::optional<ModelFacts> Model(const Value& value) const {
    if (!value.present()) return std::nullopt;
    if (value.is_map()) return ReadModelFacts(value);
    Result<ModelFacts> found = catalog_.FindModel(value.String());
    if (found) return *std::move(found);
    value.AddError("{}", found.error().message);
    return std::nullopt;
  }

  Subject ReadSubject(const Value& claim) const {
    Subject subject;
    subject.model = Model(claim["model"]);
    subject.parameters = ReadPlain(claim["parameters"]);
    subject.active_parameters = ReadPlain(claim["active_parameters"]);
    subject.precision = ReadPrecision(claim["precision"]);
    subject.devices = static_cast<int>(claim["devices"].IntOr(1, 1, 1'000'000));
    if (const Value device = claim["device"]; device.is_map()) {
      subject.device = ReadDeviceFacts(device);
    } else if (device.present()) {
      Result<DeviceFacts> found = catalog_.FindDevice(device.String());
      if (found) {
        subject.device = *std::move(found);
      } else {
        device.AddError("{}", found.error().message);
      }
    }
    subject.memory = ReadFigure(claim["memory"], "B");
    subject.bandwidth = ReadFigure(claim["bandwidth"], "B/s");
    subject.compute = ReadFigure(claim["compute"], "FLOP/s");
    return subject;
  }

 private:
  const Catalog& catalog_;
};

std::vector<std::pair<std::string, Figure>> ReadInputs(const Value& inputs) {
  std::vector<std::pair<std::string, Figure>> result;
  for (const auto& [name, value] : inputs.EntriesOrEmpty()) {
    result.emplace_back(name, ReadFigure(value, ""));
  }
  return result;
}

FormulaRangeClaim ReadFormulaRange(const Value& claim) {
  FormulaRangeClaim range;
  range.formula = claim["formula"].StringOr("");
  auto bounds = [](const Value& value) {
    const std::vector<Figure> pair = ReadFigures(value);
    if (pair.size() == 2) return std::pair<Figure, Figure>(pair[0], pair[1]);
    if (value.present()) value.AddError("a range is written [low, high]");
    return std::pair<Figure, Figure>();
  };
  for (const auto& [name, value] : claim["inputs"].EntriesOrEmpty()) {
    range.inputs.emplace_back(name, bounds(value));
  }
  std::tie(range.stated_low, range.stated_high) = bounds(claim["stated"]);
  return range;
}

ChangeClaim ReadChange(const Value& c) {
  const Direction direction = c["direction"].ChoiceOr<Direction>(
      Direction::kUnstated, {{"gain", Direction::kGain}, {"drop", Direction::kDrop}});
  return {ReadFigure(c["from"], ""), ReadFigure(c["to"], ""), ReadFigure(c["stated"], ""),
          direction, c["lower_is_better"].BoolOr(false)};
}

PresentValueClaim ReadPresentValue(const Value& c) {
  PresentValueClaim claim{ReadFigures(c["flows"]), ReadFigure(c["outlay"], ""),
                          ReadPlain(c["rate"]), ReadFigure(c["stated"], ""), std::nullopt};
  if (const Value timing = c["timing"]; timing.present()) {
    claim.timing = timing.Choice<Timing>(
        {{"start", Timing::kStart}, {"middle", Timing::kMiddle}, {"end", Timing::kEnd}});
  }
  return claim;
}

FormulaClaim ReadFormula(const Value& c) {
  FormulaClaim claim{
      c["formula"].StringOr(""), ReadInputs(c["inputs"]), ReadFigure(c["stated"], ""), {}};
  for (const auto& [name, value] : c["alternatives"].EntriesOrEmpty()) {
    claim.alternatives.emplace_back(name, value.String());
  }
  return claim;
}

using ReadBody = std::function<ClaimBody(const Value&, const Reader&)>;

const std::map<std::string, ReadBody, std::less<>>& Kinds() {
  static const std::map<std::string, ReadBody, std::less<>> kinds = {
      {"memory_fit",
       [](const Value& c, const Reader& r) -> ClaimBody {
         return MemoryFitClaim{r.ReadSubject(c), ReadFigure(c["used"], "B"),
                               ReadFigure(c["context"], "tokens")};
       }},
      {"decode_rate",
       [](const Value& c, const Reader& r) -> ClaimBody {
         return DecodeRateClaim{r.ReadSubject(c), ReadFigure(c["rate"], "tokens/s"),
                                ReadPlain(c["batch"])};
       }},
      {"prefill",
       [](const Value& c, const Reader& r) -> ClaimBody {
         return PrefillClaim{r.ReadSubject(c), ReadFigure(c["prompt"], "tokens"),
                             ReadFigure(c["time"], "s")};
       }},
      {"bandwidth_use",
       [](const Value& c, const Reader&) -> ClaimBody {
         return BandwidthUseClaim{ReadFigure(c["used"], "B/s"), ReadFigure(c["peak"], "B/s"),
                                  ReadPlain(c["stated"]), c["called_bottleneck"].BoolOr(false)};
       }},
      {"link_transfer",
       [](const Value& c, const Reader& r) -> ClaimBody {
         return LinkTransferClaim{r.Model(c["model"]),
                                  ReadPrecision(c["cache"]),
                                  ReadFigure(c["context"], "tokens"),
                                  ReadFigure(c["bytes"], "B"),
                                  ReadFigure(c["link"], "B/s"),
                                  ReadFigure(c["time"], "s"),
                                  ReadPlain(c["stated"])};
       }},
      {"training",
       [](const Value& c, const Reader& r) -> ClaimBody {
         return TrainingClaim{r.ReadSubject(c), ReadFigure(c["tokens"], "tokens"),
                              ReadFigure(c["device_time"], "device*day")};
       }},
      {"change", [](const Value& c, const Reader&) -> ClaimBody { return ReadChange(c); }},
      {"ratio",
       [](const Value& c, const Reader&) -> ClaimBody {
         return RatioClaim{ReadFigure(c["numerator"], ""), ReadFigure(c["denominator"], ""),
                           ReadFigure(c["stated"], "")};
       }},
      {"sum",
       [](const Value& c, const Reader&) -> ClaimBody {
         return SumClaim{ReadFigures(c["parts"]), ReadFigure(c["total"], "")};
       }},
      {"percentile_sum",
       [](const Value& c, const Reader&) -> ClaimBody {
         return PercentileSumClaim{ReadFigures(c["parts"]), ReadFigure(c["total"], "")};
       }},
      {"formula", [](const Value& c, const Reader&) -> ClaimBody { return ReadFormula(c); }},
      {"formula_range",
       [](const Value& c, const Reader&) -> ClaimBody { return ReadFormulaRange(c); }},
      {"target",
       [](const Value& c, const Reader&) -> ClaimBody {
         return TargetClaim{ReadFigure(c["reached"], ""), ReadFigure(c["at_least"], ""),
                            ReadFigure(c["at_most"], "")};
       }},
      {"present_value",
       [](const Value& c, const Reader&) -> ClaimBody { return ReadPresentValue(c); }},
      {"break_even",
       [](const Value& c, const Reader&) -> ClaimBody {
         return BreakEvenClaim{
             ReadFigure(c["fixed_a"], "MONEY/year"), ReadFigure(c["variable_a"], "MONEY/Mtoken"),
             ReadFigure(c["fixed_b"], "MONEY/year"), ReadFigure(c["variable_b"], "MONEY/Mtoken"),
             ReadFigure(c["stated"], "tokens/day")};
       }},
      {"token_cost",
       [](const Value& c, const Reader&) -> ClaimBody {
         return TokenCostClaim{ReadFigure(c["price"], "MONEY/h"), ReadPlain(c["devices"]),
                               ReadFigure(c["rate"], "tokens/s"), ReadPlain(c["utilisation"]),
                               ReadFigure(c["stated"], "MONEY/Mtoken")};
       }},
      {"amdahl",
       [](const Value& c, const Reader&) -> ClaimBody {
         return AmdahlClaim{ReadPlain(c["part_share"]), ReadPlain(c["part_speedup"]),
                            ReadPlain(c["overall_speedup"])};
       }},
      {"little",
       [](const Value& c, const Reader&) -> ClaimBody {
         return LittleClaim{ReadFigure(c["rate"], "requests/s"), ReadFigure(c["time"], "s"),
                            ReadFigure(c["in_flight"], "requests")};
       }},
      {"f1",
       [](const Value& c, const Reader&) -> ClaimBody {
         return F1Claim{ReadPlain(c["precision"]), ReadPlain(c["recall"]), ReadPlain(c["stated"])};
       }},
      {"accuracy",
       [](const Value& c, const Reader&) -> ClaimBody {
         return AccuracyClaim{ReadPlain(c["accuracy"]), ReadPlain(c["miss_rate"]),
                              ReadPlain(c["false_alarm_rate"]), ReadPlain(c["prevalence"])};
       }},
      {"availability",
       [](const Value& c, const Reader&) -> ClaimBody {
         return AvailabilityClaim{ReadPlain(c["availability"]), ReadFigure(c["downtime"], "s"),
                                  ReadFigure(c["period"], "s")};
       }},
  };
  return kinds;
}

}  // namespace

Result<ClaimsFile> ReadClaims(const config::Document& document, const Catalog& catalog) {
  const Value root = document.root();
  const Reader reader(catalog);
  ClaimsFile file;
  file.title = root["title"].StringOr("Claims");
  file.source = root["source"].StringOr("");
  std::set<std::string> seen;
  for (const Value& item : root["claims"].List()) {
    Claim claim;
    claim.id = item["id"].String();
    claim.where = item["where"].StringOr("");
    claim.says = item["says"].StringOr("");
    claim.assumes = item["assumes"].StringOr("");
    claim.kind = item["kind"].String();
    if (!seen.insert(claim.id).second) item["id"].AddError("two claims have the id '{}'", claim.id);
    const auto kind = Kinds().find(claim.kind);
    if (kind == Kinds().end()) {
      std::vector<std::string> names;
      for (const auto& [name, read] : Kinds()) names.push_back(name);
      const std::string near = NearestName(claim.kind, names);
      item["kind"].AddError("unknown kind '{}'{}; there are {}", claim.kind,
                            near.empty() ? "" : fmt::format(", did you mean '{}'?", near),
                            fmt::join(names, ", "));
      item.Json();  // its other keys cannot be judged
      continue;
    }
    claim.body = kind->second(item, reader);
    file.claims.push_back(std::move(claim));
  }
  TARE_RETURN_IF_ERROR(document.Finish());
  return file;
}

}  // namespace tare::econ
