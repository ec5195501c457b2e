// Arithmetic expressions of published formulas: numbers, names, + - * / ^, parentheses, min, max,
// abs, sqrt, exp, log, and sum(q, first, last, body).
//
// An expression evaluates at a point or over a box of intervals, which bounds what a formula can
// reach. Hostile text is safe: depth, size and the number of evaluations are capped.
// Ownership: an Expression owns its tree; it may be moved. Thread safety: const use only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "econ/interval.h"

namespace tare::econ {

class Expression {
 public:
  static Result<Expression> Parse(std::string_view text);
  Expression(Expression&&) noexcept;
  Expression& operator=(Expression&&) noexcept;
  ~Expression();

  using Values = std::map<std::string, Interval, std::less<>>;
  // Every free name must have a value. The result may be infinite when a divisor may be zero.
  Result<Interval> Evaluate(const Values& values) const;
  Result<double> EvaluateAt(const Values& values) const;  // at the middle of each interval

  // Names that need values (bound sum variables excluded), sorted.
  std::vector<std::string> FreeNames() const;

  struct Node;

 private:
  explicit Expression(std::unique_ptr<Node> root);
  std::unique_ptr<Node> root_;
};

}  // namespace tare::econ
