#include "base/config.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <deque>
#include <istream>
#include <sstream>
#include <unordered_map>

#include "base/check.h"
#include "base/files.h"
#include "base/text.h"
#include "base/units.h"

namespace tare::config {
namespace internal {

enum class NodeKind { kNull, kScalar, kList, kMap };

struct Node {
  NodeKind kind = NodeKind::kNull;
  int line = 0;
  bool plain = false;  // a scalar without quotes
  std::string text;
  std::vector<Node*> items;                            // of a list
  std::vector<std::pair<std::string, Node*>> entries;  // of a map, in file order
  std::vector<int> key_lines;                          // of a map, beside entries
  std::size_t expanded = 1;                            // values below and here, aliases expanded
  int height = 1;                                      // levels below and here

  // What readers asked for, to find unknown keys.
  bool opened = false;
  bool taken_whole = false;
  std::vector<std::string> asked;
};

struct Mistake {
  int line;
  std::string path;
  std::string message;
};

struct State {
  std::string source;
  std::deque<Node> nodes;  // owns the nodes, whose links are plain: no deep recursion at the end
  Node* root = nullptr;
  std::vector<Mistake> mistakes;

  Node* NewNode(NodeKind kind, int line) {
    Node& node = nodes.emplace_back();
    node.kind = kind;
    node.line = line;
    return &node;
  }
};

}  // namespace internal

namespace {

using internal::Node;
using internal::NodeKind;
using internal::State;

// Thrown through yaml-cpp's parser to stop it; caught in Document::Parse.
struct Refusal {
  int line;
  std::string message;
};

// Builds our nodes from yaml-cpp's events. Throws Refusal.
class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(State& state) : state_(state) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Add(Make(NodeKind::kNull, mark, anchor), mark);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto it = anchors_.find(anchor);
    // An anchor of a list or map that is still open would make the document contain itself.
    if (it == anchors_.end() || std::find(open_.begin(), open_.end(), it->second) != open_.end()) {
      throw Refusal{Line(mark), "an alias refers to something that contains it"};
    }
    Add(it->second, mark);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    // yaml-cpp marks plain scalars "?" and quoted ones "!"; any other tag is the writer's.
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw Refusal{Line(mark), fmt::format("the YAML tag '{}' is not supported", tag)};
    }
    if (!IsValidUtf8(value)) throw Refusal{Line(mark), "text is not valid UTF-8"};
    Node* node = Make(NodeKind::kScalar, mark, anchor);
    node->text = value;
    node->plain = tag != "!";
    if (node->plain && (value == "~" || value == "null")) node->kind = NodeKind::kNull;
    Add(node, mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(Make(NodeKind::kList, mark, anchor), mark);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(Make(NodeKind::kMap, mark, anchor), mark);
    pending_keys_.push_back({});
  }
  void OnMapEnd() override {
    pending_keys_.pop_back();
    Close();
  }

 private:
  struct PendingKey {
    bool waiting = false;  // a key was read, its value not yet
    std::string key;
    int line = 0;
  };

  static int Line(const YAML::Mark& mark) { return mark.line + 1; }

  Node* Make(NodeKind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (state_.nodes.size() >= kMaxValues) {
      throw Refusal{Line(mark), fmt::format("more than {} values", kMaxValues)};
    }
    Node* node = state_.NewNode(kind, Line(mark));
    if (anchor != YAML::NullAnchor) anchors_[anchor] = node;
    return node;
  }

  void Open(Node* node, const YAML::Mark& mark) {
    if (!open_.empty() && open_.back()->kind == NodeKind::kMap && !pending_keys_.back().waiting) {
      throw Refusal{Line(mark), "a key must be a word, not a list or a map"};
    }
    if (static_cast<int>(open_.size()) >= kMaxDepth) {
      throw Refusal{Line(mark), fmt::format("nested deeper than {} levels", kMaxDepth)};
    }
    open_.push_back(node);
  }

  void Close() {
    Node* node = open_.back();
    open_.pop_back();
    Attach(node, node->line);
  }

  void Add(Node* node, const YAML::Mark& mark) { Attach(node, Line(mark)); }

  void Attach(Node* node, int line) {
    if (open_.empty()) {
      state_.root = node;
      return;
    }
    Node* parent = open_.back();
    if (parent->kind == NodeKind::kMap) {
      PendingKey& pending = pending_keys_.back();
      if (!pending.waiting) {
        TakeKey(*parent, *node, line, pending);
        return;
      }
      pending.waiting = false;
      parent->entries.emplace_back(std::move(pending.key), node);
      parent->key_lines.push_back(pending.line);
    } else {
      parent->items.push_back(node);
    }
    parent->expanded += node->expanded;
    parent->height = std::max(parent->height, node->height + 1);
    if (parent->expanded > kMaxValues) {
      throw Refusal{line, fmt::format("aliases expand to more than {} values", kMaxValues)};
    }
    if (parent->height + static_cast<int>(open_.size()) > kMaxDepth + 1) {
      throw Refusal{line, fmt::format("nested deeper than {} levels", kMaxDepth)};
    }
  }

  static void TakeKey(const Node& map, const Node& node, int line, PendingKey& pending) {
    if (node.kind != NodeKind::kScalar) throw Refusal{line, "a key must be a word"};
    for (std::size_t i = 0; i < map.entries.size(); ++i) {
      if (map.entries[i].first == node.text) {
        throw Refusal{line, fmt::format("key '{}' is given twice (first on line {})", node.text,
                                        map.key_lines[i])};
      }
    }
    if (map.entries.size() >= kMaxMapEntries) {
      throw Refusal{line, fmt::format("more than {} keys in one map", kMaxMapEntries)};
    }
    pending = {true, node.text, line};
  }

  // Duplicate keys are found by looking through the map, so its size is capped too.
  static constexpr std::size_t kMaxMapEntries = 4096;

  State& state_;
  std::vector<Node*> open_;
  std::vector<PendingKey> pending_keys_;  // one for each open map
  std::unordered_map<YAML::anchor_t, Node*> anchors_;
};

std::string ChildPath(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

const char* Describe(const Node& node) {
  switch (node.kind) {
    case NodeKind::kNull:
      return "nothing";
    case NodeKind::kScalar:
      return "a single value";
    case NodeKind::kList:
      return "a list";
    case NodeKind::kMap:
      return "a map";
  }
  return "";
}

std::string JoinNames(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

void FindUnknownKeys(const Node& node, const std::string& path,
                     std::vector<internal::Mistake>& found) {
  if (node.taken_whole) return;
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    FindUnknownKeys(*node.items[i], fmt::format("{}[{}]", path, i), found);
  }
  for (std::size_t i = 0; i < node.entries.size(); ++i) {
    const auto& [key, child] = node.entries[i];
    const std::string child_path = ChildPath(path, key);
    const bool asked = std::find(node.asked.begin(), node.asked.end(), key) != node.asked.end();
    if (node.opened && !asked) {
      const std::string nearest = NearestName(key, node.asked);
      const std::string hint = nearest.empty()
                                   ? fmt::format("known here: {}", JoinNames(node.asked))
                                   : fmt::format("did you mean '{}'?", nearest);
      found.push_back(
          {node.key_lines[i], child_path, fmt::format("unknown key '{}'; {}", key, hint)});
    } else {
      FindUnknownKeys(*child, child_path, found);
    }
  }
}

nlohmann::json ScalarToJson(const Node& node) {
  if (!node.plain) return node.text;
  if (node.text == "true") return true;
  if (node.text == "false") return false;
  if (auto integer = ParseInteger(node.text)) return *integer;
  if (auto number = ParseNumber(node.text)) return *number;
  return node.text;
}

nlohmann::json NodeToJson(Node& node) {
  node.taken_whole = true;
  switch (node.kind) {
    case NodeKind::kNull:
      return nullptr;
    case NodeKind::kScalar:
      return ScalarToJson(node);
    case NodeKind::kList: {
      nlohmann::json list = nlohmann::json::array();
      for (Node* item : node.items) list.push_back(NodeToJson(*item));
      return list;
    }
    case NodeKind::kMap: {
      nlohmann::json map = nlohmann::json::object();
      for (auto& [key, child] : node.entries) map[key] = NodeToJson(*child);
      return map;
    }
  }
  return nullptr;
}

}  // namespace

bool Value::is_map() const { return node_ != nullptr && node_->kind == NodeKind::kMap; }
bool Value::is_list() const { return node_ != nullptr && node_->kind == NodeKind::kList; }

void Value::Record(std::string message) const {
  state_->mistakes.push_back({line_, path_, std::move(message)});
}

Value Value::operator[](std::string_view key) const {
  const std::string child_path = ChildPath(path_, key);
  if (node_ == nullptr) return Value(state_, nullptr, child_path, line_);
  if (node_->kind != NodeKind::kMap) {
    if (!node_->opened) Record(fmt::format("expected a map of keys, got {}", Describe(*node_)));
    node_->opened = true;
    return Value(state_, nullptr, child_path, line_);
  }
  node_->opened = true;
  if (std::find(node_->asked.begin(), node_->asked.end(), key) == node_->asked.end()) {
    node_->asked.emplace_back(key);
  }
  for (std::size_t i = 0; i < node_->entries.size(); ++i) {
    if (node_->entries[i].first == key) {
      return Value(state_, node_->entries[i].second, child_path, node_->key_lines[i]);
    }
  }
  return Value(state_, nullptr, child_path, line_);
}

std::vector<Value> Value::ListOrEmpty() const { return present() ? List() : std::vector<Value>(); }

std::vector<Value> Value::List() const {
  std::vector<Value> items;
  if (node_ == nullptr) {
    Record("is missing; expected a list");
  } else if (node_->kind != NodeKind::kList) {
    Record(fmt::format("expected a list, got {}", Describe(*node_)));
  } else {
    for (std::size_t i = 0; i < node_->items.size(); ++i) {
      Node* item = node_->items[i];
      items.push_back(Value(state_, item, fmt::format("{}[{}]", path_, i), item->line));
    }
  }
  return items;
}

std::vector<std::pair<std::string, Value>> Value::EntriesOrEmpty() const {
  return present() ? Entries() : std::vector<std::pair<std::string, Value>>();
}

std::vector<std::pair<std::string, Value>> Value::Entries() const {
  std::vector<std::pair<std::string, Value>> entries;
  if (node_ == nullptr) {
    Record("is missing; expected a map");
  } else if (node_->kind != NodeKind::kMap) {
    Record(fmt::format("expected a map, got {}", Describe(*node_)));
  } else {
    for (const auto& [key, child] : node_->entries) entries.emplace_back(key, (*this)[key]);
  }
  return entries;
}

nlohmann::json Value::Json() const {
  return node_ == nullptr ? nlohmann::json() : NodeToJson(*node_);
}

const std::string* Value::Scalar(const char* expected) const {
  if (node_ == nullptr) {
    Record(fmt::format("is missing; expected {}", expected));
  } else if (node_->kind != NodeKind::kScalar) {
    Record(fmt::format("expected {}, got {}", expected, Describe(*node_)));
  } else {
    return &node_->text;
  }
  return nullptr;
}

template <typename T>
T Value::Parsed(const char* expected, Result<T> (*parse)(std::string_view)) const {
  const std::string* text = Scalar(expected);
  if (text == nullptr) return T{};
  Result<T> value = parse(*text);
  if (value) return *value;
  Record(std::move(value).error().message);
  return T{};
}

std::string Value::String() const {
  const std::string* text = Scalar("text");
  if (text == nullptr) return {};
  if (text->empty()) Record("is empty; expected text");
  return *text;
}

bool Value::Bool() const {
  const std::string* text = Scalar("true or false");
  if (text == nullptr) return false;
  if (*text != "true" && *text != "false") {
    Record(fmt::format("expected true or false, got '{}'", *text));
  }
  return *text == "true";
}

std::int64_t Value::Int(std::int64_t min, std::int64_t max) const {
  const std::size_t before = state_->mistakes.size();
  const std::int64_t value = Parsed<std::int64_t>("a whole number", &ParseInteger);
  if (state_->mistakes.size() != before) return min;
  if (value < min || value > max) {
    if (max == std::numeric_limits<std::int64_t>::max()) {
      Record(fmt::format("expected at least {}, got {}", min, value));
    } else {
      Record(fmt::format("expected {} to {}, got {}", min, max, value));
    }
    return min;
  }
  return value;
}

double Value::Number(double min, double max) const {
  const std::size_t before = state_->mistakes.size();
  const double value = Parsed<double>("a number", &ParseNumber);
  if (state_->mistakes.size() != before) return min;
  if (value < min || value > max) {
    if (max == std::numeric_limits<double>::max()) {
      Record(fmt::format("expected at least {}, got {}", min, value));
    } else {
      Record(fmt::format("expected {} to {}, got {}", min, max, value));
    }
    return min;
  }
  return value;
}

Nanos Value::Duration() const {
  return Parsed<Nanos>("a duration such as 500ms or 60s", &ParseDuration);
}
std::uint64_t Value::ByteSize() const {
  return Parsed<std::uint64_t>("a size such as 16GiB", &ParseByteSize);
}
double Value::RatePerSecond() const {
  return Parsed<double>("a rate such as 12/s", &ParseRatePerSecond);
}
double Value::Fraction() const { return Parsed<double>("a share such as 85%", &ParseFraction); }
double Value::UsdPerHour() const {
  return Parsed<double>("a price such as 0.12/h", &ParseUsdPerHour);
}

std::string Value::StringOr(std::string_view fallback) const {
  return present() ? String() : std::string(fallback);
}
bool Value::BoolOr(bool fallback) const { return present() ? Bool() : fallback; }
std::int64_t Value::IntOr(std::int64_t fallback, std::int64_t min, std::int64_t max) const {
  return present() ? Int(min, max) : fallback;
}
double Value::NumberOr(double fallback, double min, double max) const {
  return present() ? Number(min, max) : fallback;
}
Nanos Value::DurationOr(Nanos fallback) const { return present() ? Duration() : fallback; }
std::uint64_t Value::ByteSizeOr(std::uint64_t fallback) const {
  return present() ? ByteSize() : fallback;
}
double Value::RatePerSecondOr(double fallback) const {
  return present() ? RatePerSecond() : fallback;
}
double Value::FractionOr(double fallback) const { return present() ? Fraction() : fallback; }
double Value::UsdPerHourOr(double fallback) const { return present() ? UsdPerHour() : fallback; }

std::size_t Value::PickRequired(const std::vector<std::string>& names) const {
  TARE_CHECK(!names.empty());
  const std::string expected = "one of " + JoinNames(names);
  const std::string* text = Scalar(expected.c_str());
  if (text == nullptr) return 0;
  const auto it = std::find(names.begin(), names.end(), *text);
  if (it == names.end()) {
    Record(fmt::format("expected {}; got '{}'", expected, *text));
    return 0;
  }
  return static_cast<std::size_t>(it - names.begin());
}

Document::Document(std::unique_ptr<State> state) : state_(std::move(state)) {}
Document::Document(Document&&) noexcept = default;
Document& Document::operator=(Document&&) noexcept = default;
Document::~Document() = default;

Result<Document> Document::Parse(std::string_view text, std::string source) {
  const auto fail = [&](int line, std::string_view message) {
    return Fail(ErrorKind::kInvalidArgument, "{}:{}: {}", source, line, message);
  };
  if (text.size() > kMaxBytes) {
    return fail(1, fmt::format("the file is {}, the limit is {}", FormatBytes(text.size()),
                               FormatBytes(kMaxBytes)));
  }
  if (!IsValidUtf8(text)) return fail(1, "the file is not UTF-8 text");
  if (text.find('\0') != std::string_view::npos) return fail(1, "the file holds a NUL byte");

  auto state = std::make_unique<State>();
  state->source = source;
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    Builder builder(*state);
    const bool any = parser.HandleNextDocument(builder);
    if (!any || state->root == nullptr || state->root->kind == NodeKind::kNull) {
      return fail(1, "the file is empty");
    }
    State rest;
    Builder second(rest);
    if (parser.HandleNextDocument(second) && rest.root != nullptr) {
      return fail(rest.root->line, "a second document begins here; put one in a file");
    }
  } catch (const Refusal& refusal) {
    return fail(refusal.line, refusal.message);
  } catch (const YAML::Exception& error) {
    return fail(error.mark.is_null() ? 1 : error.mark.line + 1,
                fmt::format("not valid YAML: {}", error.msg));
  } catch (const std::exception& error) {
    return fail(1, fmt::format("not valid YAML: {}", error.what()));
  }
  return Document(std::move(state));
}

Result<Document> Document::Load(const std::filesystem::path& path) {
  TARE_TRY(const std::string text, ReadFile(path, kMaxBytes));
  return Parse(text, path.string());
}

Value Document::root() const { return Value(state_.get(), state_->root, "", state_->root->line); }

Status Document::Finish() const {
  std::vector<internal::Mistake> mistakes = state_->mistakes;
  FindUnknownKeys(*state_->root, "", mistakes);
  if (mistakes.empty()) return {};
  std::stable_sort(mistakes.begin(), mistakes.end(),
                   [](const auto& a, const auto& b) { return a.line < b.line; });
  constexpr std::size_t kShown = 20;
  std::string message;
  for (std::size_t i = 0; i < std::min(mistakes.size(), kShown); ++i) {
    const internal::Mistake& mistake = mistakes[i];
    if (i != 0) message += '\n';
    message += fmt::format("{}:{}: ", state_->source, mistake.line);
    if (!mistake.path.empty()) message += mistake.path + ": ";
    message += mistake.message;
  }
  if (mistakes.size() > kShown) message += fmt::format("\n… and {} more", mistakes.size() - kShown);
  return tl::unexpected<Error>(
      Error{ErrorKind::kInvalidArgument, std::move(message), mistakes.front().path});
}

}  // namespace tare::config
