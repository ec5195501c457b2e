#include "econ/expression.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <set>

#include "base/text.h"

namespace tare::econ {

enum class Operation {
  kNumber,
  kName,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kPower,
  kNegate,
  kMin,
  kMax,
  kAbs,
  kSqrt,
  kExp,
  kLog,
  kSum,
};

struct Expression::Node {
  Operation operation = Operation::kNumber;
  double number = 0;
  std::string name;  // of a variable, or the bound one of a sum
  std::vector<std::unique_ptr<Node>> arguments;
};

namespace {

using Node = Expression::Node;
using NodePtr = std::unique_ptr<Node>;

// A published formula is a line; these keep hostile ones cheap.
constexpr int kMaxDepth = 60;
constexpr int kMaxNodes = 2000;
constexpr long kMaxEvaluations = 2'000'000;

NodePtr Make(Operation operation, std::vector<NodePtr> arguments) {
  auto node = std::make_unique<Node>();
  node->operation = operation;
  node->arguments = std::move(arguments);
  return node;
}

template <typename... Nodes>
std::vector<NodePtr> Arguments(Nodes... nodes) {
  std::vector<NodePtr> arguments;
  (arguments.push_back(std::move(nodes)), ...);
  return arguments;
}

// Recursive descent: sum of products of signed powers.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<NodePtr> Whole() {
    TARE_TRY(NodePtr node, Sum(0));
    SkipBlanks();
    if (at_ != text_.size()) return Unexpected();
    return node;
  }

 private:
  tl::unexpected<Error> Unexpected() const {
    if (at_ >= text_.size()) {
      return Fail(ErrorKind::kInvalidArgument, "formula '{}' ends too early", text_);
    }
    return Fail(ErrorKind::kInvalidArgument, "formula '{}': '{}' was not expected at position {}",
                text_, text_[at_], at_ + 1);
  }
  void SkipBlanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool Take(char c) {
    SkipBlanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Status CheckSize(int depth) {
    if (depth > kMaxDepth || ++nodes_ > kMaxNodes) {
      return Fail(ErrorKind::kInvalidArgument,
                  "formula of {} characters is nested too deeply or too long", text_.size());
    }
    return {};
  }

  Result<NodePtr> Sum(int depth) {
    TARE_RETURN_IF_ERROR(CheckSize(depth));
    TARE_TRY(NodePtr left, Product(depth + 1));
    while (true) {
      const bool add = Take('+');
      if (!add && !Take('-')) return left;
      TARE_RETURN_IF_ERROR(CheckSize(depth));
      TARE_TRY(NodePtr right, Product(depth + 1));
      left = Make(add ? Operation::kAdd : Operation::kSubtract,
                  Arguments(std::move(left), std::move(right)));
    }
  }

  Result<NodePtr> Product(int depth) {
    TARE_TRY(NodePtr left, Signed(depth + 1));
    while (true) {
      const bool times = Take('*');
      if (!times && !Take('/')) return left;
      TARE_RETURN_IF_ERROR(CheckSize(depth));
      TARE_TRY(NodePtr right, Signed(depth + 1));
      left = Make(times ? Operation::kMultiply : Operation::kDivide,
                  Arguments(std::move(left), std::move(right)));
    }
  }

  Result<NodePtr> Signed(int depth) {
    TARE_RETURN_IF_ERROR(CheckSize(depth));
    if (Take('-')) {
      TARE_TRY(NodePtr inner, Signed(depth + 1));
      return Make(Operation::kNegate, Arguments(std::move(inner)));
    }
    TARE_TRY(NodePtr base, Primary(depth + 1));
    if (!Take('^')) return base;
    TARE_TRY(NodePtr exponent, Signed(depth + 1));  // right associative
    return Make(Operation::kPower, Arguments(std::move(base), std::move(exponent)));
  }

  Result<NodePtr> Primary(int depth) {
    TARE_RETURN_IF_ERROR(CheckSize(depth));
    SkipBlanks();
    if (Take('(')) {
      TARE_TRY(NodePtr inner, Sum(depth + 1));
      if (!Take(')')) return Unexpected();
      return inner;
    }
    if (at_ >= text_.size()) return Unexpected();
    const unsigned char first = static_cast<unsigned char>(text_[at_]);
    if (std::isdigit(first) != 0 || first == '.') return Number();
    if (std::isalpha(first) != 0 || first == '_') return NameOrCall(depth);
    return Unexpected();
  }

  Result<NodePtr> Number() {
    auto node = std::make_unique<Node>();
    auto [end, code] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), node->number);
    if (code != std::errc()) return Unexpected();
    at_ = static_cast<std::size_t>(end - text_.data());
    return node;
  }

  std::string Name() {
    SkipBlanks();
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) {
      ++at_;
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  Result<NodePtr> NameOrCall(int depth) {
    std::string name = Name();
    if (!Take('(')) {
      auto node = std::make_unique<Node>();
      node->operation = Operation::kName;
      node->name = std::move(name);
      return node;
    }
    static const std::map<std::string, std::pair<Operation, std::size_t>, std::less<>> functions = {
        {"min", {Operation::kMin, 2}}, {"max", {Operation::kMax, 2}},
        {"abs", {Operation::kAbs, 1}}, {"sqrt", {Operation::kSqrt, 1}},
        {"exp", {Operation::kExp, 1}}, {"log", {Operation::kLog, 1}},
        {"sum", {Operation::kSum, 3}},
    };
    const auto found = functions.find(name);
    if (found == functions.end()) {
      return Fail(ErrorKind::kInvalidArgument,
                  "formula '{}': no function '{}'; there are min, max, abs, sqrt, exp, log and sum",
                  text_, name);
    }
    auto node = Make(found->second.first, {});
    if (node->operation == Operation::kSum) {
      node->name = Name();
      if (node->name.empty() || !Take(',')) return Unexpected();
    }
    do {
      TARE_TRY(NodePtr argument, Sum(depth + 1));
      node->arguments.push_back(std::move(argument));
    } while (Take(','));
    if (!Take(')')) return Unexpected();
    if (node->arguments.size() != found->second.second) {
      return Fail(ErrorKind::kInvalidArgument, "formula '{}': {} takes {} values, {} given", text_,
                  name, found->second.second, node->arguments.size());
    }
    return node;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int nodes_ = 0;
};

class Evaluator {
 public:
  explicit Evaluator(const Expression::Values& values) : values_(values) {}

  Result<Interval> Value(const Node& node) {
    if (++evaluations_ > kMaxEvaluations) {
      return Fail(ErrorKind::kInvalidArgument, "formula takes too many steps; shorten its sums");
    }
    switch (node.operation) {
      case Operation::kNumber:
        return Interval::Of(node.number);
      case Operation::kName:
        return Lookup(node.name);
      case Operation::kSum:
        return SumOver(node);
      default:
        break;
    }
    TARE_TRY(Interval a, Value(*node.arguments[0]));
    if (node.arguments.size() == 1) return Unary(node.operation, a);
    TARE_TRY(Interval b, Value(*node.arguments[1]));
    return Binary(node.operation, a, b);
  }

 private:
  Result<Interval> Lookup(const std::string& name) const {
    for (auto bound = bound_.rbegin(); bound != bound_.rend(); ++bound) {
      if (bound->first == name) return Interval::Of(bound->second);
    }
    const auto found = values_.find(name);
    if (found != values_.end()) return found->second;
    return Fail(ErrorKind::kInvalidArgument, "formula needs a value for '{}'", name);
  }

  Result<Interval> SumOver(const Node& node) {
    TARE_TRY(Interval first, Value(*node.arguments[0]));
    TARE_TRY(Interval last, Value(*node.arguments[1]));
    if (first.low != first.high || last.low != last.high || !std::isfinite(first.low) ||
        !std::isfinite(last.low)) {
      return Fail(ErrorKind::kInvalidArgument, "the bounds of a sum must be exact numbers");
    }
    Interval total = Interval::Of(0);
    for (double index = first.low; index <= last.low; ++index) {
      if (index + 1 == index) {
        return Fail(ErrorKind::kInvalidArgument, "the bounds of a sum are too large");
      }
      bound_.emplace_back(node.name, index);
      Result<Interval> term = Value(*node.arguments[2]);
      bound_.pop_back();
      if (!term) return term;
      total = total + *term;
    }
    return total;
  }

  static Interval Unary(Operation operation, Interval a) {
    switch (operation) {
      case Operation::kNegate:
        return {-a.high, -a.low};
      case Operation::kAbs:
        if (a.low >= 0) return a;
        if (a.high <= 0) return {-a.high, -a.low};
        return {0, std::max(-a.low, a.high)};
      case Operation::kSqrt:
        return a.low < 0 ? Interval::Whole() : Interval{std::sqrt(a.low), std::sqrt(a.high)};
      case Operation::kExp:
        return {std::exp(a.low), std::exp(a.high)};
      default:
        return a.low <= 0 ? Interval::Whole() : Interval{std::log(a.low), std::log(a.high)};
    }
  }

  static Interval Binary(Operation operation, Interval a, Interval b) {
    switch (operation) {
      case Operation::kAdd:
        return a + b;
      case Operation::kSubtract:
        return a - b;
      case Operation::kMultiply:
        return a * b;
      case Operation::kDivide:
        return a / b;
      case Operation::kMin:
        return Min(a, b);
      case Operation::kMax:
        return Max(a, b);
      default:
        return Power(a, b);
    }
  }

  const Expression::Values& values_;
  std::vector<std::pair<std::string, double>> bound_;
  long evaluations_ = 0;
};

void CollectNames(const Node& node, std::vector<std::string>& bound, std::set<std::string>& names) {
  if (node.operation == Operation::kName) {
    if (std::find(bound.begin(), bound.end(), node.name) == bound.end()) names.insert(node.name);
    return;
  }
  const bool sum = node.operation == Operation::kSum;
  for (std::size_t i = 0; i < node.arguments.size(); ++i) {
    const bool body = sum && i == 2;
    if (body) bound.push_back(node.name);
    CollectNames(*node.arguments[i], bound, names);
    if (body) bound.pop_back();
  }
}

}  // namespace

Expression::Expression(std::unique_ptr<Node> root) : root_(std::move(root)) {}
Expression::Expression(Expression&&) noexcept = default;
Expression& Expression::operator=(Expression&&) noexcept = default;
Expression::~Expression() = default;

Result<Expression> Expression::Parse(std::string_view text) {
  TARE_TRY(NodePtr root, Parser(text).Whole());
  return Expression(std::move(root));
}

Result<Interval> Expression::Evaluate(const Values& values) const {
  return Evaluator(values).Value(*root_);
}

Result<double> Expression::EvaluateAt(const Values& values) const {
  Values points;
  for (const auto& [name, interval] : values) points[name] = Interval::Of(interval.Middle());
  TARE_TRY(Interval result, Evaluate(points));
  return result.Middle();
}

std::vector<std::string> Expression::FreeNames() const {
  std::vector<std::string> bound;
  std::set<std::string> names;
  CollectNames(*root_, bound, names);
  return {names.begin(), names.end()};
}

}  // namespace tare::econ
