#include "gateway/router_job.h"

#include <algorithm>
#include <utility>

#include "api/wire_error.h"

namespace tare::gateway {

namespace {

// Estimates for balancing only; what an answer really takes corrects them as it comes.
constexpr std::size_t kBytesPerToken = 4;
constexpr std::int64_t kUsualAnswer = 256;  // tokens, when the client names no bound

std::int64_t PromptTokens(const api::ChatRequest& request) {
  const auto [bytes, tokens] = request.input_size();
  return static_cast<std::int64_t>(bytes / kBytesPerToken + tokens);
}

std::int64_t AnswerTokens(const api::ChatRequest& request) {
  const std::int64_t one = request.max_tokens ? *request.max_tokens : kUsualAnswer;
  return one * request.n;
}

}  // namespace

void JobHome::ServeLines() {
  if (serving_lines || waiting == 0) return;
  serving_lines = true;
  loop->Later([this] {
    serving_lines = false;
    const Nanos now = net::MonotonicNow();
    std::erase_if(lines, [](const std::weak_ptr<WaitingLine>& line) { return line.expired(); });
    for (const auto& weak : lines) {
      const auto line = weak.lock();
      line->room.Serve(now, [this](std::uint64_t id) {
        const auto found = jobs.find(id);
        return found == jobs.end() || found->second->TryPlace();
      });
    }
  });
}

Job::Job(JobHome* home, std::uint64_t id, std::shared_ptr<const Plan> plan, const Route* route,
         std::shared_ptr<const api::ChatRequest> request, std::shared_ptr<ChatSink> sink)
    : home_(home),
      id_(id),
      plan_(std::move(plan)),
      route_(route),
      request_(std::move(request)),
      sink_(std::move(sink)),
      prompt_tokens_(PromptTokens(*request_)),
      continuation_(*request_, route->continue_cut_streams) {}

Job::~Job() { Settle(); }

void Job::Begin() {
  home_->budget.OnRequest();
  const Nanos now = net::MonotonicNow();
  if (const auto wait = route_->line->Shedder(request_->tier).Admit(now)) {
    route_->line->shed.fetch_add(1);
    sink_->OnRetryAfter(*wait);
    GiveUp({ErrorKind::kUnavailable,
            fmt::format("'{}' is overloaded: requests come faster than it answers them",
                        route_->model),
            "", api::kOverloaded});
    return;
  }
  Order();
  if (order_.empty()) {
    // Only an adapter's request may find nobody: its adapter went since the route was found.
    GiveUp({ErrorKind::kNotFound,
            fmt::format("the model '{}' does not exist here any more: its adapter was unloaded",
                        request_->model),
            "model", api::kModelNotFound});
    return;
  }
  NextTarget(0);
  if (route_->shadow && request_->adapter.empty()) StartCopy();
}

// After the request's own attempt is out. Takes nothing that a request could have had.
void Job::StartCopy() {
  const ShadowLane& lane = *route_->shadow;
  if (attempt_ == nullptr || home_->Random() >= lane.policy.share) return;
  const std::shared_ptr<Server>& server = lane.target.server;
  if (home_->waiting > 0 || lane.stats->running() >= lane.policy.max_concurrent || server->Full() ||
      server->Down() || server->breaker.open()) {
    lane.stats->Skip();
    return;
  }
  pair_ = std::make_shared<ShadowPair>(lane.stats, net::MonotonicNow());
  const std::int64_t tokens = prompt_tokens_ + AnswerTokens(*request_);
  server->running.fetch_add(1);
  server->outstanding.fetch_add(tokens);
  const auto ended = [home = home_, id = id_] {
    auto node = home->copies.extract(id);
    if (node.empty()) return;
    home->loop->Later([copy = std::shared_ptr<ShadowCopy>(std::move(node.mapped()))] {});
  };
  const auto given_back = [home = home_, server, tokens] {
    server->running.fetch_sub(1);
    server->outstanding.fetch_sub(tokens);
    home->ServeLines();
  };
  auto copy = std::make_unique<ShadowCopy>(pair_, ended, given_back);
  copy->Start(*server->origin, request_, lane.target.model);
  home_->copies.emplace(id_, std::move(copy));
}

void Job::EndPair(bool answered) {
  if (pair_ == nullptr) return;
  pair_->request.End(answered, net::MonotonicNow());
  pair_->CompareWhenBothEnded();
  pair_.reset();
}

void Job::DropCopy() {
  if (pair_ == nullptr) return;
  pair_.reset();
  auto node = home_->copies.extract(id_);
  if (node.empty()) return;
  home_->loop->Later([copy = std::shared_ptr<ShadowCopy>(std::move(node.mapped()))] {});
}

void Job::Order() {
  if (route_->balance == Balance::kPrefix) {
    prefix_ = PrefixIndex::Blocks(
        PrefixIndex::Salt(route_->model, request_->adapter),
        {request_->cache_salt, request_->tools_json, request_->messages_json, request_->prompt});
  }
  const bool sticky = route_->sticky && !request_->user.empty();
  const Nanos now = net::MonotonicNow();
  std::vector<BalanceTarget> targets;
  targets.reserve(route_->regular());
  for (std::size_t i = 0; i < route_->regular(); ++i) {
    const Target& target = route_->targets[i];
    BalanceTarget& view = targets.emplace_back();
    view.weight = target.weight * target.server->Sound(now);
    view.outstanding = target.server->Outstanding(now);
    view.other_tier = !target.Serves(request_->tier);
    view.prefix_bytes = prefix_.empty() ? 0 : home_->prefixes.Known(prefix_, target.server->id);
    view.draw = sticky ? StickyDraw(request_->user, target.server->name() + '/' + target.model)
                       : std::max(home_->Random(), 1e-12);
  }
  order_ = OrderTargets(route_->balance, targets);
  if (!request_->adapter.empty()) {
    // Another model's answer would not be the adapter's, so there is no trying out either.
    std::erase_if(order_,
                  [&](std::size_t i) { return !route_->targets[i].HasAdapter(request_->adapter); });
    return;
  }
  if (route_->rollout == nullptr) return;
  in_rollout_ = route_->rollout->state() == RolloutState::kRunning;
  canary_ = route_->rollout->Assign(request_->id, request_->user, home_->Random());
  // The targets there were stay a way out, so that trying costs nobody an answer.
  if (canary_) order_.insert(order_.begin(), route_->regular());
}

void Job::ClientLeft() {
  if (attempt_ != nullptr) Current().breaker.OnNoVerdict();
  DropCopy();
  Erase();
}

void Job::Stop() {
  Settle();
  sink_->OnError({ErrorKind::kUnavailable, "the server is shutting down", "", ""});
}

void Job::OnChunk(api::ChatChunk chunk) {
  if (chunk.tokens > 0) {
    if (!std::exchange(first_token_, true)) {
      Discharge(prompt_tokens_);
      first_token_at_ = net::MonotonicNow();
    }
    Discharge(chunk.tokens);
  }
  if (pair_ != nullptr) pair_->request.Add(chunk, net::MonotonicNow());
  if (!request_->stream) {
    held_.push_back(std::move(chunk));
    return;
  }
  continuation_.Join(chunk);
  // A role alone is no part of an answer yet: passing it on would begin the stream, with this
  // target's name, before it is known that this target answers.
  if (chunk.tokens == 0 && chunk.finish == api::FinishReason::kNone) return;
  if (!delivered_) {
    delivered_ = true;
    sink_->OnRoute(AnsweringModel());
  }
  sink_->OnChunk(std::move(chunk));
}

// Each target has one try, beginning with the one after that which was cut. Completions are gone on
// from anywhere, as their prompt is a text; a chat only where its last message can be continued.
bool Job::ContinueElsewhere() {
  if (!continuation_.possible()) return false;
  auto rest = continuation_.Rest(*request_);
  if (!rest) return false;
  rest_ = std::move(*rest);
  const bool chat = !request_->messages_json.empty();
  const Nanos now = net::MonotonicNow();
  const std::size_t cut_at = position_;
  for (std::size_t step = 1; step <= order_.size(); ++step) {
    position_ = (cut_at + step) % order_.size();
    const bool had =
        std::find(continued_at_.begin(), continued_at_.end(), position_) != continued_at_.end();
    if (had || (chat && !Current().config.assistant_prefix) || Current().Down() ||
        Current().Full() || !Current().breaker.WouldAllow(now)) {
      continue;
    }
    // Only what goes on costs anything, and nobody becomes a probe who may not go.
    if (!home_->budget.Spend()) break;
    Current().breaker.Allow(now);
    continued_at_.push_back(position_);
    attempts_ = 0;
    StartAttempt();
    return true;
  }
  position_ = cut_at;
  return false;
}

void Job::OnComplete(const api::Usage& usage) {
  Server& server = Current();
  server.successes.fetch_add(1);
  TellRollout(/*failed=*/false);
  server.breaker.OnSuccess();
  server.open.store(false);
  EndPair(/*answered=*/true);
  Erase();  // first: the sink lets go of the call, which must find nothing to cancel
  if (!delivered_) sink_->OnRoute(AnsweringModel());
  for (api::ChatChunk& chunk : held_) sink_->OnChunk(std::move(chunk));
  if (rest_ == nullptr) return sink_->OnDone(usage);
  server.continued.fetch_add(1);
  sink_->OnDone(continuation_.Whole(usage));
}

void Job::OnFailure(Failure failure) {
  Judge(failure);
  if (CountsAgainstHealth(Classify(failure))) TellRollout(/*failed=*/true);
  EndAttempt();
  held_.clear();
  if (pair_ != nullptr && !delivered_) pair_->request.Reset();
  if (delivered_) {
    // The first cut is what the client hears of, not why going on failed.
    if (!cut_) {
      cut_ = std::move(failure.error);
      cut_->code = api::kStreamInterrupted;
    }
    if (!ContinueElsewhere()) GiveUp(std::move(*cut_));
    return;
  }
  Decision decision = Decide(failure, attempts_, home_->Random(), plan_->retry);
  if (decision.action == Decision::kRetrySame &&
      (Current().breaker.open() || !home_->budget.Spend())) {
    decision.action = Decision::kNextUpstream;
  }
  const bool too_long = Classify(failure) == FailureClass::kContext;
  last_ = std::move(failure.error);
  switch (decision.action) {
    case Decision::kRetrySame:
      timer_ = home_->loop->RunAt(net::MonotonicNow() + decision.delay, [this] {
        timer_ = {};
        Current().retries.fetch_add(1);
        StartAttempt();
      });
      return;
    case Decision::kNextUpstream:
      if (too_long) needed_len_ = At().max_model_len;
      NextTarget(position_ + 1);
      return;
    case Decision::kGiveUp:
      GiveUp(std::move(*last_));
      return;
  }
}

// The first choice answers under the name the client used; another model names itself.
const std::string& Job::AnsweringModel() const {
  const Target& first = route_->targets[order_.front()];
  return At().model == first.model ? request_->model : At().model;
}

Job::Place Job::FindPlace(std::size_t from) {
  const Nanos now = net::MonotonicNow();
  bool busy = false;
  for (position_ = from; position_ < order_.size(); ++position_) {
    if (needed_len_ > 0 && At().max_model_len <= needed_len_) continue;
    if (Current().Down()) continue;
    if (Current().Full()) {
      busy = true;
      continue;
    }
    if (!Current().breaker.Allow(now)) continue;
    attempts_ = 0;
    StartAttempt();
    return Place::kStarted;
  }
  return busy ? Place::kBusy : Place::kNone;
}

void Job::NextTarget(std::size_t from) {
  switch (FindPlace(from)) {
    case Place::kStarted:
      return;
    case Place::kBusy:
      Wait(from);
      return;
    case Place::kNone:
      if (last_) return GiveUp(std::move(*last_));
      GiveUp({ErrorKind::kUnavailable,
              fmt::format("no upstream of '{}' takes requests now: all are failing; they are "
                          "probed again within seconds",
                          route_->model),
              "", ""});
      return;
  }
}

void Job::Wait(std::size_t from) {
  const Nanos now = net::MonotonicNow();
  WaitingRoom& room = route_->line->room;
  position_ = from;  // where TryPlace goes on
  if (!room.Enter(id_, request_->tier, now)) {
    route_->line->refused.fetch_add(1);
    GiveUpBusy("all upstreams are at their limit and the queue is full");
    return;
  }
  waiting_ = true;
  ++home_->waiting;
  timer_ = home_->loop->RunAt(now + room.options().Of(request_->tier).timeout, [this] {
    timer_ = {};
    WaitedTooLong();
  });
}

bool Job::TryPlace() {
  const std::size_t from = position_;
  if (FindPlace(from) == Place::kStarted) {
    waiting_ = false;  // the room takes it out
    --home_->waiting;
    if (timer_.serial != 0) home_->loop->CancelTimer(std::exchange(timer_, {}));
    return true;
  }
  position_ = from;
  return false;
}

void Job::LeaveLine() {
  if (!std::exchange(waiting_, false)) return;
  --home_->waiting;
  route_->line->room.Leave(id_, request_->tier, net::MonotonicNow());
}

void Job::WaitedTooLong() {
  LeaveLine();
  route_->line->timed_out.fetch_add(1);
  GiveUpBusy("all upstreams stayed at their limit for the time a request may wait");
}

void Job::StartAttempt() {
  Server& server = Current();
  ++attempts_;
  server.attempts.fetch_add(1);
  server.running.fetch_add(1);
  first_token_ = false;
  if (begun_ == Nanos{}) begun_ = net::MonotonicNow();
  charged_ = prompt_tokens_ + AnswerTokens(*request_);
  server.outstanding.fetch_add(charged_);
  if (!prefix_.empty()) home_->prefixes.Add(prefix_, server.id);
  attempt_ = server.origin->Start(rest_ != nullptr ? rest_ : request_, At().model, this);
}

void Job::TellRollout(bool failed) {
  // Retries at the arm's own target count as its time; another target is not the arm any more.
  if (!in_rollout_ || position_ != 0) return;
  in_rollout_ = false;
  const Nanos now = net::MonotonicNow();
  const Nanos first = first_token_ ? first_token_at_ : now;
  route_->rollout->Observe(canary_, {failed, first - begun_, now - begun_});
}

void Job::Discharge(std::int64_t tokens) {
  tokens = std::min(tokens, charged_);
  charged_ -= tokens;
  Current().outstanding.fetch_sub(tokens);
}

void Job::EndAttempt() {
  if (attempt_ == nullptr) return;
  Current().running.fetch_sub(1);
  Discharge(charged_);
  attempt_.reset();
  home_->ServeLines();
}

void Job::Judge(const Failure& failure) {
  Server& server = Current();
  if (CountsAgainstHealth(Classify(failure))) {
    server.failures.fetch_add(1);
    server.breaker.OnFailure(net::MonotonicNow());
  } else {
    server.rejections.fetch_add(1);
    server.breaker.OnNoVerdict();
  }
  server.open.store(server.breaker.open());
}

void Job::GiveUpBusy(const char* why) {
  sink_->OnRetryAfter(route_->line->room.ExpectedWait());
  GiveUp({ErrorKind::kUnavailable, fmt::format("'{}' is overloaded: {}", route_->model, why), "",
          api::kOverloaded});
}

void Job::GiveUp(Error error) {
  EndPair(/*answered=*/false);
  Erase();
  sink_->OnError(std::move(error));
}

void Job::Settle() {
  EndAttempt();
  LeaveLine();
  if (timer_.serial != 0) home_->loop->CancelTimer(std::exchange(timer_, {}));
}

// The job is over. It is destroyed at the end of the round, as its own code may be running.
void Job::Erase() {
  Settle();
  auto node = home_->jobs.extract(id_);
  if (node.empty()) return;
  home_->loop->Later([job = std::shared_ptr<Job>(std::move(node.mapped()))] {});
}

}  // namespace tare::gateway
