#include "econ/cases.h"

#include <cmath>
#include <functional>
#include <map>

#include "econ/case_common.h"
#include "econ/complexity.h"
#include "econ/compute_cost.h"
#include "econ/hidden_cost.h"
#include "econ/links.h"
#include "econ/maas.h"
#include "econ/penalty.h"
#include "econ/quantity_reader.h"
#include "econ/roi_case.h"

namespace tare::econ {
namespace {

using config::Value;
using nlohmann::json;

json ComplexityCase(const Value& root, const Catalog&, const CaseOptions&) {
  json options = json::array();
  for (const Value& item : root["options"].List()) {
    const std::string name = item["name"].String();
    const Complexity c = OperationsComplexity({ReadQuantity(item["alert_coverage"], "%"),
                                               ReadQuantity(item["scale_out"], "s"),
                                               ReadQuantity(item["self_healing"], "%")});
    json option = {{"name", name},
                   {"index", c.index},
                   {"from_alerts", c.from_alerts},
                   {"from_scale_out", c.from_scale_out},
                   {"from_healing", c.from_healing},
                   {"share_of_maximum", c.share_of_maximum},
                   {"band", c.band}};
    Attach(option, "published", AgainstPublished(item["published"], c.index, "", {}));
    options.push_back(std::move(option));
  }
  return {{"options", std::move(options)},
          {"maximum", kComplexityMaximum},
          {"note",
           "stated to range over 0-10; the formula reaches 75.5 (nothing covered, 30 s or slower, "
           "nothing healed), so the bands separate only systems close to full coverage"}};
}

json Hidden(const Value& root, const Catalog&, const CaseOptions&) {
  const std::string currency = ReadCurrency(root);
  json answer = {{"currency", currency}};
  if (const Value v = root["drift_detection"]; v.present()) {
    const DriftDetection drift{
        ReadQuantity(v["cpu_time"], "s"), ReadQuantity(v["calls_per_batch"], "calls"),
        ReadQuantity(v["calls"], "calls/day"), ReadQuantity(v["cpu_price"], "MONEY/h", currency)};
    json result = {{"cpu_hours_per_year", DriftCpuHoursPerYear(drift)},
                   {"cost_per_year", DriftCostPerYear(drift)}};
    Attach(result, "published",
           AgainstPublished(v["published"], DriftCostPerYear(drift), "MONEY/year", currency));
    answer["drift_detection"] = std::move(result);
  }
  if (const Value v = root["prompt_staff"]; v.present()) {
    const PromptStaff staff{ReadQuantity(v["people"], "people"),
                            ReadQuantity(v["cost"], "MONEY/person/year", currency),
                            ReadQuantity(v["platform_staff"], "MONEY/year", currency)};
    json result = {{"cost_per_year", PromptStaffCostPerYear(staff)},
                   {"share_of_platform_staff", PromptStaffShare(staff)}};
    Attach(result, "published",
           AgainstPublished(v["published"], PromptStaffShare(staff), "1", currency));
    answer["prompt_staff"] = std::move(result);
  }
  if (const Value v = root["audits"]; v.present()) {
    std::vector<std::string> names;
    std::vector<double> parts;
    std::vector<Value> published;
    for (const Value& item : v.List()) {
      names.push_back(item["name"].String());
      parts.push_back(ReadQuantity(item["effort"], "1"));
      published.push_back(item["published"]);
    }
    const std::vector<double> shares = ProportionalShares(parts);
    json audits = json::array();
    for (std::size_t i = 0; i < shares.size(); ++i) {
      json audit = {{"name", names[i]}, {"share", shares[i]}};
      Attach(audit, "published", AgainstPublished(published[i], shares[i], "1", {}));
      audits.push_back(std::move(audit));
    }
    answer["audits"] = std::move(audits);
  }
  return answer;
}

json Penalty(const Value& root, const Catalog&, const CaseOptions&) {
  const std::string currency = ReadCurrency(root);
  const FalsePositivePenalty penalty{
      ReadQuantity(root["rate_before"], "%"), ReadQuantity(root["rate_after"], "%"),
      ReadQuantity(root["cases"], "cases/year"),
      ReadQuantity(root["cost_per_case_and_point"], "MONEY/case", currency)};
  json answer = {
      {"currency", currency},
      {"before_per_year", PenaltyPerYear(penalty.rate_before_percent, penalty.cases_per_year,
                                         penalty.cost_per_case_and_point)},
      {"after_per_year", PenaltyPerYear(penalty.rate_after_percent, penalty.cases_per_year,
                                        penalty.cost_per_case_and_point)},
      {"avoided_per_year", PenaltyAvoidedPerYear(penalty)}};
  Attach(
      answer, "published",
      AgainstPublished(root["published"], PenaltyAvoidedPerYear(penalty), "MONEY/year", currency));
  return answer;
}

json Maas(const Value& root, const Catalog&, const CaseOptions&) {
  const std::string currency = ReadCurrency(root);
  Discounting discounting;
  discounting.rate_per_year = ReadQuantity(root["discounting"]["rate"], "1/year");
  discounting.timing = root["discounting"]["timing"].Choice<Timing>(
      {{"start", Timing::kStart}, {"middle", Timing::kMiddle}, {"end", Timing::kEnd}});
  json options = json::array();
  for (const Value& item : root["options"].List()) {
    std::vector<YearCost> years;
    std::vector<double> totals;
    for (const Value& year : item["years"].List()) {
      YearCost cost;
      if (year.is_map()) {
        cost = {ReadQuantity(year["licence"], "MONEY", currency),
                ReadQuantity(year["infrastructure"], "MONEY", currency),
                ReadQuantity(year["operations"], "MONEY", currency)};
      } else {
        cost.operations = ReadQuantity(year, "MONEY", currency);
      }
      years.push_back(cost);
      totals.push_back(cost.total());
    }
    const double value = DiscountedCost(years, discounting);
    json option = {{"name", item["name"].String()},
                   {"npv", -value},
                   {"present_cost", value},
                   {"years", totals}};
    std::string note;
    if (const Value published = item["published"]; published.present()) {
      const double stated = ReadQuantity(published, "MONEY", currency);
      const FittingConvention fit = FitConvention(totals, discounting.rate_per_year, stated, 0.5);
      note = fmt::format("start of year {:.1f}, middle {:.1f}, end {:.1f}", fit.start, fit.middle,
                         fit.end);
      if (fit.timing) note += fmt::format("; the {} of year fits", ToString(*fit.timing));
      if (fit.rate) note += fmt::format("; at year ends it would take {:.2f} %", *fit.rate * 100);
    }
    Attach(option, "published",
           AgainstPublished(item["published"], value, "MONEY", currency, note));
    options.push_back(std::move(option));
  }
  return {{"currency", currency},
          {"rate", discounting.rate_per_year},
          {"timing", ToString(discounting.timing)},
          {"options", std::move(options)}};
}

json Compute(const Value& root, const Catalog&, const CaseOptions&) {
  json options = json::array();
  for (const Value& item : root["options"].List()) {
    const std::string name = item["name"].String();
    const double parameters = ReadQuantity(item["active_parameters"], "");
    const double tokens = ReadQuantity(item["tokens"], "tokens/request");
    const DeviceCompute device{ReadQuantity(item["peak"], "FLOP/s"),
                               ReadQuantity(item["utilisation"], "1")};
    json option = {
        {"name", name},
        {"device_seconds_per_request", DeviceSecondsPerRequest(parameters, tokens, device)},
        {"requests_per_second_at_most", RequestsPerSecondCeiling(parameters, tokens, device)}};
    if (const Value rate = item["rate"]; rate.present()) {
      option["devices_needed"] =
          DevicesForRate(parameters, tokens, device, ReadQuantity(rate, "requests/s"));
    }
    options.push_back(std::move(option));
  }
  return {{"options", std::move(options)}};
}

json Training(const Value& root, const Catalog& catalog, const CaseOptions&) {
  json options = json::array();
  double reference = 0;
  for (const Value& item : root["options"].List()) {
    const std::string name = item["name"].String();
    json option = {{"name", name}};
    double days = 0;
    if (const Value stated = item["device_days"]; stated.present()) {
      days = ReadQuantity(stated, "device*day");
    }
    if (const Value model_name = item["model"]; model_name.present()) {
      Result<ModelFacts> model = catalog.FindModel(model_name.String());
      if (!model) model_name.AddError("{}", model.error().message);
      const double active = model ? MatmulParametersPerToken(*model) : 1;
      const double tokens = ReadQuantity(item["tokens"], "tokens");
      const double peak = ReadQuantity(item["peak"], "FLOP/s");
      const double utilisation = ReadQuantity(item["utilisation"], "1");
      const double computed = TrainingDeviceDays(active, tokens, {peak, utilisation});
      option["device_days_from_formula"] = computed;
      if (days > 0) {
        option["implied_utilisation"] = ImpliedTrainingUtilisation(active, tokens, peak, days);
      } else {
        days = computed;
      }
    }
    option["device_days"] = days;
    if (reference == 0) reference = days;
    const double share = reference > 0 ? days / reference : 0;
    option["relative_to_first"] = share;
    Attach(option, "published", AgainstPublished(item["published_share"], share, "1", {}));
    options.push_back(std::move(option));
  }
  return {{"options", std::move(options)}};
}

json Link(const Value& root, const Catalog& catalog, const CaseOptions&) {
  json options = json::array();
  for (const Value& item : root["options"].List()) {
    const std::string name = item["name"].String();
    const double link = ReadQuantity(item["link"], "B/s");
    const double seconds = ReadQuantityOr(item["time"], "s", 0);
    json option = {{"name", name}, {"link_bytes_per_second", link}};
    if (const Value model_name = item["model"]; model_name.present()) {
      Result<ModelFacts> model = catalog.FindModel(model_name.String());
      const std::string cache_name = item["cache"].StringOr("bf16");
      const std::optional<Precision> cache = FindPrecision(cache_name);
      const double context = ReadQuantity(item["context"], "tokens");
      if (!model) model_name.AddError("{}", model.error().message);
      if (!cache) item["cache"].AddError("unknown precision '{}'", cache_name);
      if (model && cache) {
        const LinkMove move = MoveCache(*model, *cache, context, link, seconds);
        option["bytes"] = move.bytes;
        option["seconds_at_peak"] = move.seconds_at_peak;
        if (seconds > 0) option["link_used"] = move.link_used;
        if (const Value devices = item["expert_devices"]; devices.present()) {
          const int count = static_cast<int>(devices.Int(1, 100'000));
          option["all_to_all_bytes_per_token"] = AllToAllBytesPerToken(*model, count);
          option["all_to_all_tokens_per_second_at_peak"] =
              count > 1 && model->sparse()
                  ? json(link * count / AllToAllBytesPerToken(*model, count))
                  : json(nullptr);
        }
      }
    }
    if (const Value stated = item["published_use"]; stated.present() && seconds > 0) {
      const double share = ReadQuantity(stated, "1");
      option["bytes_implied_by_published_use"] = ImpliedLinkBytes(link, share, seconds);
      if (option.contains("link_used")) {
        Attach(option, "published",
               AgainstPublished(stated, option["link_used"].get<double>(), "1", {}));
      }
    }
    options.push_back(std::move(option));
  }
  return {{"options", std::move(options)}};
}

using AnswerFunction = std::function<json(const Value&, const Catalog&, const CaseOptions&)>;
const std::map<std::string, AnswerFunction, std::less<>>& Answers() {
  static const std::map<std::string, AnswerFunction, std::less<>> answers = {
      {"roi", RoiCase},       {"complexity", ComplexityCase},
      {"hidden", Hidden},     {"penalty", Penalty},
      {"maas", Maas},         {"compute", Compute},
      {"training", Training}, {"link", Link},
  };
  return answers;
}

}  // namespace

std::vector<std::string> CaseKinds() {
  std::vector<std::string> kinds;
  for (const auto& [kind, answer] : Answers()) kinds.push_back(kind);
  return kinds;
}

Result<json> AnswerCase(std::string_view kind, const config::Document& document,
                        const Catalog& catalog, const CaseOptions& options) {
  const auto found = Answers().find(kind);
  if (found == Answers().end()) {
    return Fail(ErrorKind::kInvalidArgument, "no case of kind '{}'", kind);
  }
  const Value root = document.root();
  const std::string name = root["name"].String();
  const std::string source = root["source"].StringOr("");
  const std::string note = root["note"].StringOr("");
  json answer = found->second(root, catalog, options);
  TARE_RETURN_IF_ERROR(document.Finish());
  answer["name"] = name;
  if (!source.empty()) answer["source"] = source;
  if (!note.empty()) answer["assumes"] = note;
  return answer;
}

}  // namespace tare::econ
