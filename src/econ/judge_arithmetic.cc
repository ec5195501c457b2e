// Claims against their own arithmetic: changes, ratios, sums, percentiles, formulas, targets.
#include <algorithm>
#include <cmath>

#include "econ/expression.h"
#include "econ/judge_common.h"

namespace tare::econ {
namespace {

bool SameKind(const Published& a, const Published& b) {
  return a.dimension == b.dimension && a.currency == b.currency;
}

Judgement MixedUnits(const Published& a, const Published& b) {
  return {Verdict::kInconsistent,
          fmt::format("{} and {} are not the same kind of quantity", a.text(), b.text()),
          std::nullopt};
}

std::string JoinTexts(const std::vector<Figure>& figures) {
  std::string joined;
  for (const Figure& figure : figures) {
    if (!joined.empty()) joined += " + ";
    joined += figure ? figure->text() : "?";
  }
  return joined;
}

bool AllPresent(const std::vector<Figure>& figures) {
  for (const Figure& figure : figures) {
    if (!figure) return false;
  }
  return !figures.empty();
}

// Names of the formula that have no figure.
template <typename Inputs>
std::optional<Judgement> MissingNames(const Expression& expression, const Inputs& inputs) {
  std::string names;
  for (const std::string& name : expression.FreeNames()) {
    const bool given = std::any_of(inputs.begin(), inputs.end(),
                                   [&](const auto& input) { return input.first == name; });
    if (!given) names += (names.empty() ? "" : ", ") + name;
  }
  if (names.empty()) return std::nullopt;
  return Missing({{names, false}});
}

Judgement BadFormula(const Error& error) {
  return {Verdict::kUnsupported, error.message, std::nullopt};
}

Result<Interval> EvaluateFormula(const std::string& formula,
                                 const std::vector<std::pair<std::string, Figure>>& inputs) {
  TARE_TRY(Expression expression, Expression::Parse(formula));
  Expression::Values values;
  for (const auto& [name, figure] : inputs) {
    if (figure) values[name] = figure->range();
  }
  return expression.Evaluate(values);
}

// The same with inputs exactly as written: the arithmetic line shows this.
Result<double> EvaluateWritten(const std::string& formula,
                               const std::vector<std::pair<std::string, Figure>>& inputs) {
  TARE_TRY(Expression expression, Expression::Parse(formula));
  Expression::Values values;
  for (const auto& [name, figure] : inputs) {
    if (figure) values[name] = Interval::Of(figure->base());
  }
  return expression.EvaluateAt(values);
}

}  // namespace

Judgement Judge(const ChangeClaim& claim) {
  if (auto missing = Missing({{"the value before", claim.from.has_value()},
                              {"the value after", claim.to.has_value()},
                              {"the change", claim.stated.has_value()}})) {
    return *missing;
  }
  if (!SameKind(*claim.from, *claim.to)) return MixedUnits(*claim.from, *claim.to);
  const bool relative = claim.stated->percent();
  Interval change = claim.to->range() - claim.from->range();
  if (relative) change = change / claim.from->range();
  // to/from - 1 keeps the rounding of `from` from counting twice.
  if (relative && claim.from->range().low > 0) {
    change = claim.to->range() / claim.from->range() - Interval::Of(1);
  }
  const double exact =
      relative ? claim.to->base() / claim.from->base() - 1 : claim.to->base() - claim.from->base();
  Published stated = *claim.stated;
  if (claim.direction != Direction::kUnstated) {
    const bool rises = (claim.direction == Direction::kGain) != claim.lower_is_better;
    stated.number = rises ? std::abs(stated.number) : -std::abs(stated.number);
  }
  const std::string how = fmt::format("{} -> {} is {}{}", claim.from->text(), claim.to->text(),
                                      exact > 0 ? "+" : "", stated.Show(exact));
  Judgement judgement;
  judgement.margin = RelativeMargin(stated.base(), exact);
  if (change.Overlaps(stated.range())) {
    judgement.arithmetic = how + ", as stated";
    return judgement;
  }
  judgement.verdict = Verdict::kInconsistent;
  const Interval mirrored = Interval{-stated.range().high, -stated.range().low};
  if (change.Overlaps(mirrored)) {
    const bool better = (exact > 0) != claim.lower_is_better;
    judgement.arithmetic =
        fmt::format("{}: a {}, not a {}", how, better ? "gain" : "drop", better ? "drop" : "gain");
  } else {
    judgement.arithmetic = fmt::format("{}, not {}", how, stated.text());
  }
  return judgement;
}

Judgement Judge(const RatioClaim& claim) {
  if (auto missing = Missing({{"the numerator", claim.numerator.has_value()},
                              {"the denominator", claim.denominator.has_value()},
                              {"the ratio", claim.stated.has_value()}})) {
    return *missing;
  }
  const Interval ratio = claim.numerator->range() / claim.denominator->range();
  return Compare(fmt::format("{} / {} =", claim.numerator->text(), claim.denominator->text()),
                 ratio, claim.numerator->base() / claim.denominator->base(), *claim.stated);
}

Judgement Judge(const SumClaim& claim) {
  if (auto missing = Missing(
          {{"every part", AllPresent(claim.parts)}, {"the total", claim.total.has_value()}})) {
    return *missing;
  }
  Interval sum = Interval::Of(0);
  double exact = 0;
  for (const Figure& part : claim.parts) {
    if (!SameKind(*part, *claim.total)) return MixedUnits(*part, *claim.total);
    sum = sum + part->range();
    exact += part->base();
  }
  return Compare(JoinTexts(claim.parts) + " =", sum, exact, *claim.total);
}

Judgement Judge(const PercentileSumClaim& claim) {
  if (auto missing = Missing(
          {{"every part", AllPresent(claim.parts)}, {"the total", claim.total.has_value()}})) {
    return *missing;
  }
  double sum = 0;
  double largest = 0;
  for (const Figure& part : claim.parts) {
    if (!SameKind(*part, *claim.total)) return MixedUnits(*part, *claim.total);
    sum += part->base();
    largest = std::max(largest, part->range().low);
  }
  const Published& total = *claim.total;
  Judgement judgement;
  judgement.margin = RelativeMargin(total.base(), sum);
  const std::string parts = JoinTexts(claim.parts);
  if (total.range().high < largest) {
    judgement.verdict = Verdict::kImpossible;
    judgement.margin = RelativeMargin(total.base(), largest);
    judgement.arithmetic =
        fmt::format("the whole takes at least as long as its slowest part: {} cannot be below {}",
                    total.text(), total.Show(largest));
  } else if (total.range().Contains(sum)) {
    judgement.verdict = Verdict::kUnsupported;
    judgement.arithmetic = fmt::format(
        "{} = {}: percentiles of parts were added; that is the percentile of the whole "
        "only if every request is slow in every part",
        parts, total.text());
  } else {
    judgement.arithmetic = fmt::format(
        "percentiles do not add: {} = {}, {} stated for the whole is possible ({} apart)", parts,
        total.Show(sum), total.text(), total.Show(std::abs(total.base() - sum)));
  }
  return judgement;
}

Judgement Judge(const FormulaClaim& claim) {
  for (const auto& [name, figure] : claim.inputs) {
    if (!figure) return *Missing({{name, false}});
  }
  if (auto missing = Missing(
          {{"the formula", !claim.formula.empty()}, {"the result", claim.stated.has_value()}})) {
    return *missing;
  }
  Result<Expression> expression = Expression::Parse(claim.formula);
  if (!expression) return BadFormula(expression.error());
  if (auto missing = MissingNames(*expression, claim.inputs)) return *missing;
  Result<Interval> range = EvaluateFormula(claim.formula, claim.inputs);
  if (!range) return BadFormula(range.error());
  Result<double> exact = EvaluateWritten(claim.formula, claim.inputs);
  if (!exact) return BadFormula(exact.error());
  const Published& stated = *claim.stated;
  Judgement judgement;
  judgement.margin = RelativeMargin(stated.base(), *exact);
  const std::string line = fmt::format("{} = {}", claim.formula, stated.Show(*exact));
  if (range->Overlaps(stated.range())) {
    judgement.arithmetic = line + ", as stated";
    return judgement;
  }
  judgement.verdict = Verdict::kInconsistent;
  judgement.arithmetic = fmt::format("{}, not {}", line, stated.text());
  for (const auto& [name, formula] : claim.alternatives) {
    Result<Interval> other = EvaluateFormula(formula, claim.inputs);
    if (other && other->Overlaps(stated.range())) {
      judgement.arithmetic += fmt::format("; the stated value follows only with {}", name);
      return judgement;
    }
  }
  return judgement;
}

Judgement Judge(const FormulaRangeClaim& claim) {
  if (auto missing = Missing({{"the formula", !claim.formula.empty()},
                              {"the stated range", claim.stated_low && claim.stated_high}})) {
    return *missing;
  }
  Result<Expression> expression = Expression::Parse(claim.formula);
  if (!expression) return BadFormula(expression.error());
  if (auto missing = MissingNames(*expression, claim.inputs)) return *missing;
  Expression::Values values;
  for (const auto& [name, bounds] : claim.inputs) {
    if (!bounds.first || !bounds.second) return *Missing({{name, false}});
    values[name] = {bounds.first->base(), bounds.second->base()};
  }
  Result<Interval> reach = expression->Evaluate(values);
  if (!reach) return BadFormula(reach.error());
  const double low = claim.stated_low->base();
  const double high = claim.stated_high->base();
  const double slack = 1e-9 * std::max(1.0, std::abs(high - low));
  Judgement judgement;
  judgement.margin = RelativeMargin(high, reach->high);
  const std::string line =
      fmt::format("{} reaches {} to {} over its inputs", claim.formula,
                  claim.stated_high->Show(reach->low), claim.stated_high->Show(reach->high));
  const bool inside = reach->low >= low - slack && reach->high <= high + slack;
  judgement.verdict = inside ? Verdict::kPlausible : Verdict::kInconsistent;
  judgement.arithmetic = fmt::format("{}, {} {} to {}", line, inside ? "within" : "not",
                                     claim.stated_low->text(), claim.stated_high->text());
  return judgement;
}

Judgement Judge(const TargetClaim& claim) {
  if (auto missing = Missing({{"the value reached", claim.reached.has_value()},
                              {"the threshold", claim.at_least || claim.at_most}})) {
    return *missing;
  }
  const Published& bound = claim.at_least ? *claim.at_least : *claim.at_most;
  if (!SameKind(*claim.reached, bound)) return MixedUnits(*claim.reached, bound);
  const bool met = claim.at_least ? claim.reached->range().high >= bound.base()
                                  : claim.reached->range().low <= bound.base();
  return {met ? Verdict::kPlausible : Verdict::kInconsistent,
          fmt::format("{} {} the {} {}", claim.reached->text(), met ? "meets" : "misses",
                      claim.at_least ? "floor of" : "limit of", bound.text()),
          RelativeMargin(claim.reached->base(), bound.base())};
}

}  // namespace tare::econ
