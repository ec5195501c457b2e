#include "econ/roi_case.h"

#include <vector>

#include "econ/case_common.h"
#include "econ/quantity_reader.h"
#include "econ/roi.h"
#include "econ/scenario_reader.h"
#include "econ/uncertainty.h"

namespace tare::econ {
namespace {

using config::Value;
using nlohmann::json;

// An input and the member it feeds, of one option or of all.
struct Binding {
  std::optional<std::size_t> option;
  double RoiInputs::*member;
};

class Reader {
 public:
  explicit Reader(const Value& root) : root_(root), currency_(ReadCurrency(root)) {}

  void Read() {
    Base("outlay", "MONEY", &RoiInputs::outlay);
    Base("base_revenue", "MONEY/quarter", &RoiInputs::base_revenue_per_quarter);
    Base("revenue_share", "1", &RoiInputs::revenue_share);
    Base("saving_base", "MONEY/quarter", &RoiInputs::saving_base_per_quarter);
    Base("saving_retention", "1", &RoiInputs::saving_retention);
    Base("benefit_base", "MONEY/quarter", &RoiInputs::benefit_base_per_quarter);
    Base("learning_retention", "1", &RoiInputs::learning_retention);
    Base("rate", "1/year", &RoiInputs::rate_per_year);
    base_.quarters = static_cast<int>(root_["quarters"].IntOr(12, 1, 400));
    for (const Value& item : root_["options"].List()) {
      names_.push_back(item["name"].String());
      options_.push_back(base_);
      published_.push_back(item["published"]);
      Option(item, "growth", &RoiInputs::user_growth_per_quarter);
      Option(item, "replacement", &RoiInputs::replacement_rate);
      Option(item, "effectiveness", &RoiInputs::effectiveness);
    }
  }

  json Answer(const CaseOptions& how) const {
    json options = json::array();
    for (std::size_t i = 0; i < options_.size(); ++i) options.push_back(OptionJson(i));
    json answer = {{"currency", currency_},
                   {"rate", base_.rate_per_year},
                   {"timing", "end of quarter"},
                   {"outlay", base_.outlay}};
    AddUncertainty(how, options, answer);
    answer["options"] = std::move(options);
    Attach(answer, "sensitivity", Matrix());
    return answer;
  }

 private:
  void Base(const char* key, std::string_view unit, double RoiInputs::*member) {
    base_.*member = Add(root_[key], key, unit, {std::nullopt, member});
  }
  void Option(const Value& item, const char* key, double RoiInputs::*member) {
    options_.back().*member =
        Add(item[key], names_.back() + ": " + key, "1", {options_.size() - 1, member});
  }
  double Add(const Value& value, std::string name, std::string_view unit, Binding binding) {
    UncertainInput input = ReadUncertain(value, unit, currency_);
    input.name = std::move(name);
    const double estimate = input.value;
    inputs_.push_back(std::move(input));
    bindings_.push_back(binding);
    return estimate;
  }

  json OptionJson(std::size_t index) const {
    const RoiInputs& inputs = options_[index];
    const RoiResult result = ReturnOnInvestment(inputs);
    json quarters = json::array();
    for (const RoiQuarter& quarter : result.quarters) {
      quarters.push_back(
          {{"revenue", quarter.revenue}, {"saving", quarter.saving}, {"benefit", quarter.benefit}});
    }
    json option = {{"name", names_[index]},
                   {"npv", result.npv},
                   {"irr", nullptr},
                   {"payback_years", nullptr},
                   {"quarters", std::move(quarters)}};
    if (result.irr) option["irr"] = result.irr->rate_per_year;
    if (result.payback_years) option["payback_years"] = *result.payback_years;
    Attach(
        option, "published",
        AgainstPublished(published_[index], result.npv, "MONEY", currency_,
                         fmt::format("{:.1f} comes out when every quarter's flow is multiplied by "
                                     "four (the division by 4 outside the exponent)",
                                     RoiNpvWithPublishedSlip(inputs))));
    return option;
  }

  // Net present values of the options, and a zero that tells how often each is above it.
  Model NetPresentValues() const {
    return [this](std::span<const double> values, std::span<double> outcomes) {
      for (std::size_t option = 0; option < options_.size(); ++option) {
        RoiInputs at = options_[option];
        for (std::size_t i = 0; i < values.size(); ++i) {
          if (bindings_[i].option.value_or(option) == option) at.*bindings_[i].member = values[i];
        }
        outcomes[option] = RoiNpv(at);
      }
      outcomes[options_.size()] = 0;
    };
  }

  void AddUncertainty(const CaseOptions& how, json& options, json& answer) const {
    bool uncertain = false;
    for (const UncertainInput& input : inputs_) uncertain = uncertain || input.uncertain();
    if (!uncertain || how.draws == 0) return;
    const Model model = NetPresentValues();
    const std::size_t count = options_.size() + 1;
    const MonteCarloResult drawn = MonteCarlo(model, inputs_, count, how.draws, how.seed, how.pool);
    for (std::size_t i = 0; i < options_.size(); ++i) {
      const OutcomeSummary& s = drawn.options[i];
      options[i]["npv_distribution"] = {
          {"mean", s.mean},
          {"p10", s.p10},
          {"p50", s.p50},
          {"p90", s.p90},
          {"p_above_zero", drawn.p_lower[options_.size()][i]},
          {"histogram",
           {{"low", s.histogram_low}, {"high", s.histogram_high}, {"counts", s.histogram}}}};
      json bars = json::array();
      for (const TornadoBar& bar : Tornado(model, inputs_, count, i)) {
        if (bar.swing() == 0) continue;
        bars.push_back({{"input", inputs_[bar.input].name},
                        {"input_p10", bar.input_low},
                        {"input_p90", bar.input_high},
                        {"npv_at_p10", bar.outcome_low},
                        {"npv_at_p90", bar.outcome_high}});
      }
      options[i]["tornado"] = std::move(bars);
    }
    json pairs = json::array();
    for (std::size_t a = 0; a < options_.size(); ++a) {
      for (std::size_t b = a + 1; b < options_.size(); ++b) {
        pairs.push_back({{"a", names_[a]}, {"b", names_[b]}, {"p_a_better", drawn.p_lower[b][a]}});
      }
    }
    answer["pairs"] = std::move(pairs);
    answer["monte_carlo"] = {{"draws", drawn.draws}, {"seed", drawn.seed}};
  }

  // Growth against replacement at one effectiveness.
  json Matrix() const {
    const Value sensitivity = root_["sensitivity"];
    if (!sensitivity.present()) return nullptr;
    RoiInputs inputs = base_;
    inputs.effectiveness = ReadQuantity(sensitivity["effectiveness"], "1");
    json rows = json::array(), growths = json::array();
    std::vector<double> columns;
    for (const Value& item : sensitivity["replacement"].List()) {
      columns.push_back(ReadQuantity(item, "1"));
    }
    for (const Value& item : sensitivity["growth"].List()) {
      inputs.user_growth_per_quarter = ReadQuantity(item, "1");
      growths.push_back(inputs.user_growth_per_quarter);
      json row = json::array();
      for (double rate : columns) {
        inputs.replacement_rate = rate;
        row.push_back(RoiNpv(inputs));
      }
      rows.push_back(std::move(row));
    }
    return {{"growth", growths},
            {"replacement", columns},
            {"effectiveness", inputs.effectiveness},
            {"npv", rows}};
  }

  Value root_;
  std::string currency_;
  RoiInputs base_;
  std::vector<std::string> names_;
  std::vector<RoiInputs> options_;
  std::vector<Value> published_;
  std::vector<UncertainInput> inputs_;
  std::vector<Binding> bindings_;  // beside inputs_
};

}  // namespace

json RoiCase(const Value& root, const Catalog&, const CaseOptions& options) {
  Reader reader(root);
  reader.Read();
  return reader.Answer(options);
}

}  // namespace tare::econ
