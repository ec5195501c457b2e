#include "sim/cluster.h"

#include <algorithm>
#include <deque>
#include <queue>

#include "base/check.h"
#include "kernels/kv_pages.h"

namespace tare::sim {
namespace {

// Virtual time 0 of the recordings: a time of 0 means "never" in a RequestRecord.
constexpr Nanos kOrigin = std::chrono::seconds(1);
constexpr std::uint64_t kEventsPerProgress = 2048;

enum class EventKind {
  kArrival,   // a request leaves its client
  kDelivery,  // it reaches the scheduler of its replica
  kIncident,
  kRestore,  // an incident is over
  kServe,    // a replica has started up
  kScale,
};

struct Event {
  Nanos at{};
  std::uint64_t order = 0;  // of creation: ties are settled by it
  EventKind kind{};
  std::size_t node = 0;        // or the incident
  std::uint64_t life = 0;      // of the node when the event was made
  std::uint64_t delivery = 0;  // index of deliveries_
};
struct Later {
  bool operator()(const Event& a, const Event& b) const {
    return a.at != b.at ? a.at > b.at : a.order > b.order;
  }
};

class Cluster;

// One replica over its lives: it may fail and start again.
struct Node final : ReplicaObserver {
  enum class State { kOff, kStarting, kServing, kDraining };

  Cluster* cluster = nullptr;
  std::size_t group = 0;
  int number = 0;
  State state = State::kOff;
  std::uint64_t life = 0;
  std::optional<Replica> replica;
  Nanos paid_since{};
  std::size_t coming = 0;        // requests on their way to it
  bool leave_when_idle = false;  // drained to be removed

  void OnTokens(Nanos at, std::uint64_t count, Nanos gap, std::uint64_t measured) override;
  void OnFirstToken(Nanos at) override;
  void OnEnd(const Answer& answer) override;
};

class Cluster {
 public:
  Cluster(const ClusterSpec& spec, Traffic traffic)
      : spec_(spec), traffic_(std::move(traffic)), router_(MakeRouter(spec.router)) {
    window_.start = kOrigin;
    window_.begin = kOrigin + spec.warm_up;
    window_.end = spec.duration > Nanos{0} ? window_.begin + spec.duration : Nanos::max();
    outcome_.emplace(Outcome{
        load::Recorder(window_.start, window_.begin, window_.end), window_, {}, {}, 0, {}, false});
    outcome_->groups.resize(spec.groups.size());
    wanted_.resize(spec.groups.size());
  }

  Status Start();
  Result<Outcome> Run(const SimProgressCallback& progress);

  // From the nodes.
  void Tokens(Node& node, Nanos at, std::uint64_t count, Nanos gap, std::uint64_t measured) {
    outcome_->recorder.Chunks(at + Reply(node), count, gap, measured);
  }
  void FirstToken(Node& node, Nanos at) {
    outcome_->recorder.Chunk(at + Reply(node), 1, load::Recorder::kFirstChunk, false);
  }
  void Ended(Node& node, const Answer& answer);

 private:
  const GroupSpec& Group(const Node& node) const { return spec_.groups[node.group]; }
  Nanos Reply(const Node& node) const { return FromSeconds(Group(node).overheads.reply_seconds); }
  void Push(Nanos at, EventKind kind, std::size_t node, std::uint64_t life = 0,
            std::uint64_t delivery = 0) {
    events_.push({at, next_order_++, kind, node, life, delivery});
  }

  Status MakeReplica(Node& node);
  void StartNode(std::size_t index, Nanos now, Nanos delay);
  // Counts what it has done and is paid for.
  void StopNode(Node& node, Nanos now);
  void NoteServing(std::size_t group, Nanos now);
  void Handle(const Event& event);
  void IssueNext(Nanos now);
  void Arrive(SimRequest request, Nanos now);
  void Route(SimRequest request, Nanos now, bool measured);
  void Deliver(const Event& event);
  void FailRequest(const SimRequest& request, Nanos now, bool measured, load::RequestError error,
                   int status, const Answer* answer);
  void NextOfUser(Nanos now);
  void Fail(std::size_t node, Nanos now);
  void Scale(Nanos now);
  void ScaleGroup(std::size_t group, Nanos now);
  void AdvanceAll(Nanos until);
  bool AdvanceEarliest(Nanos until);
  bool Issuing(Nanos now) const;
  void Finish(Nanos now);

  const ClusterSpec& spec_;
  Traffic traffic_;
  std::unique_ptr<Router> router_;
  load::Window window_;
  std::optional<Outcome> outcome_;
  std::deque<Node> nodes_;  // addresses are kept by replicas
  std::vector<ReplicaView> views_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  struct Delivery {
    SimRequest request;
    bool measured = true;
  };
  std::unordered_map<std::uint64_t, Delivery> deliveries_;
  std::uint64_t next_order_ = 0, next_delivery_ = 0;
  std::uint64_t next_request_ = 0;
  std::uint64_t measured_issued_ = 0, ended_ = 0;
  bool arrivals_over_ = false;
  std::vector<std::deque<std::pair<Nanos, int>>> wanted_;  // by group: what scaling wanted lately
  Nanos last_event_ = kOrigin;
};

void Node::OnTokens(Nanos at, std::uint64_t count, Nanos gap, std::uint64_t measured) {
  cluster->Tokens(*this, at, count, gap, measured);
}
void Node::OnFirstToken(Nanos at) { cluster->FirstToken(*this, at); }
void Node::OnEnd(const Answer& answer) { cluster->Ended(*this, answer); }

Status Cluster::MakeReplica(Node& node) {
  const GroupSpec& group = Group(node);
  auto replica = Replica::Create({group.scheduler, spec_.fast_forward}, group.step_time, node);
  if (!replica) return Context(std::move(replica).error(), "replicas '{}'", group.name);
  node.replica.emplace(std::move(*replica));
  return {};
}

Status Cluster::Start() {
  for (std::size_t g = 0; g < spec_.groups.size(); ++g) {
    const GroupSpec& group = spec_.groups[g];
    outcome_->groups[g].pages = group.scheduler.pool.pages;
    // Every node that can ever be, so that incidents can name them; those not wanted yet are off.
    const int most = std::max(group.replicas, group.autoscale ? group.autoscale->max : 0);
    for (int number = 0; number < most; ++number) {
      Node& node = nodes_.emplace_back();
      node.cluster = this;
      node.group = g;
      node.number = number;
      if (number == 0) {  // the others' options are the same
        TARE_RETURN_IF_ERROR(MakeReplica(node));
        node.replica.reset();
      }
      if (number < group.replicas) {
        TARE_RETURN_IF_ERROR(MakeReplica(node));
        node.state = Node::State::kServing;
        node.paid_since = kOrigin;
      }
    }
    NoteServing(g, kOrigin);
    if (group.autoscale) Push(kOrigin + group.autoscale->every, EventKind::kScale, g);
  }
  views_.resize(nodes_.size());
  for (std::size_t i = 0; i < spec_.incidents.size(); ++i) {
    Push(kOrigin + spec_.incidents[i].at, EventKind::kIncident, i);
  }
  if (traffic_.closed()) {
    // Over the warm-up, as the load tester's users: in step they would be another load.
    const int users = spec_.traffic.arrival.users;
    const Nanos apart = users > 0 ? spec_.warm_up / users : Nanos{0};
    for (int user = 0; user < users; ++user) {
      Push(kOrigin + apart * user, EventKind::kArrival, 0);
    }
  } else {
    IssueNext(kOrigin);
  }
  return {};
}

bool Cluster::Issuing(Nanos now) const {
  if (now >= window_.end) return false;
  return spec_.requests == 0 || measured_issued_ < spec_.requests;
}

// Open loop: one arrival ahead in the queue.
void Cluster::IssueNext(Nanos) {
  const std::optional<Nanos> at = traffic_.NextArrival();
  if (!at || !Issuing(kOrigin + *at)) {
    arrivals_over_ = true;
    return;
  }
  Push(kOrigin + *at, EventKind::kArrival, 0);
}

void Cluster::NextOfUser(Nanos now) {
  if (!traffic_.closed()) return;
  const Nanos at = now + spec_.traffic.arrival.think_time;
  if (Issuing(at)) Push(at, EventKind::kArrival, 0);
}

void Cluster::Arrive(SimRequest request, Nanos now) {
  const bool measured = now >= window_.begin && now < window_.end;
  if (measured) ++measured_issued_;
  request.intended = now;
  outcome_->recorder.Started(now);
  Route(std::move(request), now, measured);
}

void Cluster::Route(SimRequest request, Nanos now, bool measured) {
  bool any = false;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const GroupSpec& group = Group(node);
    ReplicaView& view = views_[i];
    view.in_system = node.replica ? node.replica->in_system() + node.coming : 0;
    const bool serving = node.state == Node::State::kServing;
    any = any ||
          (serving && (request.tier == engine::Tier::kBatch ? group.batch : group.interactive));
    view.accepts = serving && (group.max_in_flight <= 0 ||
                               view.in_system < static_cast<std::size_t>(group.max_in_flight));
    view.weight = group.weight;
    view.interactive = group.interactive;
    view.batch = group.batch;
    view.cache_tokens = std::size_t{group.scheduler.pool.pages} * kernels::kTokensPerPage;
  }
  const std::optional<std::size_t> pick = router_->Pick(request, views_);
  if (!pick) {
    FailRequest(request, now, measured, load::RequestError::kHttpStatus, any ? 429 : 503, nullptr);
    return;
  }
  Node& node = nodes_[*pick];
  ++node.coming;
  const Overheads& overheads = Group(node).overheads;
  const Nanos at = now + FromSeconds(overheads.request_seconds +
                                     overheads.seconds_per_prompt_token * request.input_tokens);
  const std::uint64_t delivery = next_delivery_++;
  deliveries_.emplace(delivery, Delivery{std::move(request), measured});
  Push(at, EventKind::kDelivery, *pick, node.life, delivery);
}

void Cluster::Deliver(const Event& event) {
  auto handle = deliveries_.extract(event.delivery);
  Delivery& delivery = handle.mapped();
  Node& node = nodes_[event.node];
  if (node.life != event.life) {  // it failed meanwhile
    ++outcome_->rerouted;
    Route(std::move(delivery.request), event.at, delivery.measured);
    return;
  }
  --node.coming;
  const SimRequest request = delivery.request;
  Status submitted = node.replica->Submit(std::move(delivery.request), event.at, delivery.measured);
  if (!submitted) {
    if (outcome_->refusal.empty()) outcome_->refusal = submitted.error().message;
    FailRequest(request, event.at, delivery.measured, load::RequestError::kHttpStatus, 400,
                nullptr);
    return;
  }
  GroupOutcome& outcome = outcome_->groups[node.group];
  outcome.most_in_system = std::max(outcome.most_in_system, node.replica->in_system());
  outcome.most_pages = std::max(outcome.most_pages, node.replica->pages_used());
}

// What the load tester would have recorded.
load::RequestRecord RecordOf(const SimRequest& request, const load::Window& window, bool measured) {
  load::RequestRecord record;
  record.index = request.index;
  record.intended = record.queued = record.connected = record.sent = request.intended;
  record.wanted_input = static_cast<std::uint32_t>(request.input_tokens);
  record.wanted_output = static_cast<std::uint32_t>(request.output_tokens);
  record.phase = measured                          ? load::Phase::kMeasured
                 : request.intended < window.begin ? load::Phase::kWarmUp
                                                   : load::Phase::kAfter;
  return record;
}

void AddTokens(const Answer& answer, Nanos reply, load::RequestRecord& record) {
  if (answer.tokens == 0) return;
  record.first_byte = record.first_token = answer.first_token + reply;
  record.last_token = answer.last_token + reply;
  record.longest_gap = answer.longest_gap;
  record.chunks = record.counted_output = static_cast<std::uint32_t>(answer.tokens);
  record.told_usage = true;
  record.told_input = record.wanted_input;
  record.told_output = record.counted_output;
  record.told_cached = static_cast<std::uint32_t>(answer.cached_tokens);
}

void Cluster::Ended(Node& node, const Answer& answer) {
  load::RequestRecord record = RecordOf(answer.request, window_, answer.measured);
  AddTokens(answer, Reply(node), record);
  record.http_status = 200;
  record.end = record.last_token;
  outcome_->recorder.Ended(record);
  GroupOutcome& outcome = outcome_->groups[node.group];
  ++outcome.requests;
  outcome.output_tokens += static_cast<std::uint64_t>(answer.tokens);
  ++ended_;
  NextOfUser(record.end);
}

void Cluster::FailRequest(const SimRequest& request, Nanos now, bool measured,
                          load::RequestError error, int status, const Answer* answer) {
  load::RequestRecord record = RecordOf(request, window_, measured);
  if (answer != nullptr) AddTokens(*answer, Nanos{}, record);
  record.error = error;
  record.http_status = static_cast<std::uint16_t>(status);
  record.end = now;
  outcome_->recorder.Ended(record);
  ++ended_;
  // A user told "no" at once would ask again at once, for ever.
  NextOfUser(now + std::chrono::seconds(error == load::RequestError::kHttpStatus ? 1 : 0));
}

void Cluster::NoteServing(std::size_t group, Nanos now) {
  int serving = 0;
  for (const Node& node : nodes_) {
    serving += node.group == group && node.state == Node::State::kServing;
  }
  GroupOutcome& outcome = outcome_->groups[group];
  outcome.most_replicas = std::max(outcome.most_replicas, serving);
  outcome_->changes.push_back({now - kOrigin, group, serving});
}

void Cluster::StartNode(std::size_t index, Nanos now, Nanos delay) {
  Node& node = nodes_[index];
  ++node.life;
  node.state = Node::State::kStarting;
  node.leave_when_idle = false;
  const Status made = MakeReplica(node);  // with an empty cache
  TARE_CHECK(made.has_value());           // the same options were good at the start
  node.paid_since = now;
  Push(now + delay, EventKind::kServe, index, node.life);
}

void Cluster::StopNode(Node& node, Nanos now) {
  GroupOutcome& outcome = outcome_->groups[node.group];
  if (node.state != Node::State::kOff) {
    outcome.replica_seconds += std::max(0.0, ToSeconds(now - node.paid_since));
  }
  node.state = Node::State::kOff;
  ++node.life;
  node.coming = 0;
  const engine::SchedulerStats stats = node.replica->Stats();
  outcome.steps += node.replica->steps();
  outcome.busy_seconds += node.replica->busy_seconds();
  outcome.preemptions += stats.preemptions;
  outcome.prefix_queries += stats.prefix_queries;
  outcome.prefix_hits += stats.prefix_hits;
  node.replica.reset();
}

void Cluster::Fail(std::size_t index, Nanos now) {
  Node& node = nodes_[index];
  if (node.state == Node::State::kOff) return;
  std::vector<Answer> open = node.replica->Abandon();
  StopNode(node, now);
  router_->Forget(index);
  NoteServing(node.group, now);
  for (Answer& answer : open) {
    if (answer.tokens > 0) {
      FailRequest(answer.request, now, answer.measured, load::RequestError::kStreamCut, 200,
                  &answer);
    } else {
      ++outcome_->rerouted;
      Route(std::move(answer.request), now, answer.measured);
    }
  }
}

void Cluster::ScaleGroup(std::size_t g, Nanos now) {
  const Autoscale& rule = *spec_.groups[g].autoscale;
  std::size_t in_system = 0;
  int here = 0;
  for (const Node& node : nodes_) {
    if (node.group != g) continue;
    const bool kept = node.state == Node::State::kServing || node.state == Node::State::kStarting;
    here += kept;
    if (node.state != Node::State::kOff) in_system += node.replica->in_system() + node.coming;
  }
  const double raw = static_cast<double>(in_system) / rule.target_in_flight;
  const int wanted = std::clamp(static_cast<int>(std::ceil(raw)), rule.min, rule.max);
  auto& lately = wanted_[g];
  lately.emplace_back(now, wanted);
  while (lately.front().first + rule.down_after < now) lately.pop_front();
  int target = wanted;
  for (const auto& [at, most] : lately) target = std::max(target, most);
  for (std::size_t i = 0; i < nodes_.size() && here < wanted; ++i) {
    if (nodes_[i].group != g || nodes_[i].state != Node::State::kOff) continue;
    StartNode(i, now, spec_.groups[g].start_up);
    ++here;
  }
  // Down: the last ones first, once they are empty.
  for (std::size_t i = nodes_.size(); i-- > 0 && here > target;) {
    Node& node = nodes_[i];
    if (node.group != g || node.state != Node::State::kServing) continue;
    node.state = Node::State::kDraining;
    node.leave_when_idle = true;
    --here;
    NoteServing(g, now);
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (node.group == g && node.leave_when_idle && node.state == Node::State::kDraining &&
        node.replica->in_system() + node.coming == 0) {
      StopNode(node, now);
      router_->Forget(i);
    }
  }
}

void Cluster::Handle(const Event& event) {
  switch (event.kind) {
    case EventKind::kArrival:
      if (!Issuing(event.at)) break;
      Arrive(traffic_.Make(next_request_++), event.at);
      if (!traffic_.closed()) IssueNext(event.at);
      break;
    case EventKind::kDelivery:
      Deliver(event);
      break;
    case EventKind::kIncident:
    case EventKind::kRestore: {
      const Incident& incident = spec_.incidents[event.node];
      std::size_t index = 0;
      while (nodes_[index].group != incident.group) ++index;
      index += static_cast<std::size_t>(incident.replica);
      Node& node = nodes_[index];
      if (event.kind == EventKind::kRestore) {
        if (incident.kind == Incident::Kind::kFail) {
          if (node.state == Node::State::kOff && node.life == event.life) {
            StartNode(index, event.at, spec_.groups[node.group].start_up);
          }
        } else if (node.state == Node::State::kDraining && !node.leave_when_idle) {
          node.state = Node::State::kServing;
          NoteServing(node.group, event.at);
        }
        break;
      }
      if (incident.kind == Incident::Kind::kFail) {
        Fail(index, event.at);
      } else if (node.state == Node::State::kServing) {
        node.state = Node::State::kDraining;
        NoteServing(node.group, event.at);
      }
      if (incident.lasts > Nanos{0}) {
        Push(event.at + incident.lasts, EventKind::kRestore, event.node, node.life);
      }
      break;
    }
    case EventKind::kServe: {
      Node& node = nodes_[event.node];
      if (node.life != event.life || node.state != Node::State::kStarting) break;
      node.state = Node::State::kServing;
      NoteServing(node.group, event.at);
      break;
    }
    case EventKind::kScale:
      ScaleGroup(event.node, event.at);
      // Without traffic there is nothing to scale for, and the simulation would never end.
      if (!arrivals_over_ && Issuing(event.at)) {
        Push(event.at + spec_.groups[event.node].autoscale->every, EventKind::kScale, event.node);
      }
      break;
  }
}

void Cluster::AdvanceAll(Nanos until) {
  for (Node& node : nodes_) {
    if (node.replica) node.replica->AdvanceTo(until, false);
  }
}

// Closed loop: an answer's end brings the next request, so nobody may run ahead of the others.
bool Cluster::AdvanceEarliest(Nanos until) {
  Node* first = nullptr;
  Nanos at = Nanos::max(), next = Nanos::max();
  for (Node& node : nodes_) {
    const Nanos event = node.replica ? node.replica->NextEvent() : Nanos::max();
    if (event < at) {
      next = at;
      at = event;
      first = &node;
    } else {
      next = std::min(next, event);
    }
  }
  if (first == nullptr || at > until) return false;
  const Nanos bound = std::min(until, std::max(next, at + Nanos{1}));
  first->replica->AdvanceTo(bound, true);
  // A step planned exactly at `until` comes after the events of that moment.
  return first->replica->NextEvent() != at || at < until;
}

void Cluster::Finish(Nanos now) {
  for (Node& node : nodes_) {
    if (!node.replica) continue;
    for (const Answer& answer : node.replica->Abandon()) {
      FailRequest(answer.request, now, answer.measured, load::RequestError::kUnfinished, 200,
                  &answer);
    }
    // What is paid for after the window does not belong to its traffic.
    StopNode(node, std::min(now, window_.end));
  }
  if (window_.end == Nanos::max()) {
    Nanos end = window_.begin;
    for (const load::RequestRecord& record : outcome_->recorder.requests()) {
      if (record.phase == load::Phase::kMeasured) end = std::max(end, record.end + Nanos{1});
    }
    window_.end = end;
  }
  outcome_->window = window_;
}

Result<Outcome> Cluster::Run(const SimProgressCallback& progress) {
  const Nanos deadline = window_.end == Nanos::max() ? Nanos::max() : window_.end + spec_.drain;
  Nanos now = kOrigin;
  std::uint64_t handled = 0;
  while (true) {
    const Nanos next = events_.empty() ? Nanos::max() : events_.top().at;
    const Nanos until = std::min(next, deadline);
    // In a closed loop an answer brings the next request: no replica may run ahead of the earliest.
    bool advanced = false;
    if (traffic_.closed()) {
      advanced = AdvanceEarliest(until);
    } else {
      AdvanceAll(until);
    }
    if (!advanced) {
      if (next == Nanos::max() || next > deadline) {
        now = until;
        break;
      }
      now = next;
      const Event event = events_.top();
      events_.pop();
      Handle(event);
    }
    ++handled;
    if (progress && handled % kEventsPerProgress == 0) {
      SimProgress told;
      told.virtual_s = ToSeconds(now - kOrigin);
      told.ended = ended_;
      told.share =
          spec_.duration > Nanos{0}
              ? std::min(1.0, told.virtual_s / ToSeconds(window_.end - kOrigin))
          : spec_.requests > 0
              ? std::min(1.0, static_cast<double>(ended_) / static_cast<double>(spec_.requests))
              : 0;
      if (progress(told)) {
        outcome_->cancelled = true;
        break;
      }
    }
  }
  if (now == Nanos::max()) {  // everything has ended by itself
    now = kOrigin;
    for (const load::RequestRecord& record : outcome_->recorder.requests()) {
      now = std::max(now, record.end);
    }
  }
  Finish(now);
  return std::move(*outcome_);
}

}  // namespace

Result<Outcome> RunCluster(const ClusterSpec& spec, const SimProgressCallback& progress) {
  TARE_TRY(Traffic traffic, Traffic::Create(spec.traffic));
  Cluster cluster(spec, std::move(traffic));
  TARE_RETURN_IF_ERROR(cluster.Start());
  return cluster.Run(progress);
}

}  // namespace tare::sim
