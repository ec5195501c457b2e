#include "gateway/shadow.h"

#include <string_view>
#include <utility>

#include "net/event_loop.h"

namespace tare::gateway {

namespace {

// FNV-1a, 64 bits: the same for the same bytes however they are cut into pieces.
constexpr std::uint64_t kHashBegin = 0xCBF29CE484222325u;
std::uint64_t Hash(std::uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

}  // namespace

void ShadowSide::Add(const api::ChatChunk& chunk, Nanos now) {
  if (chunk.tokens > 0 && first_token_ == Nanos{}) first_token_ = now;
  tokens_ += static_cast<std::uint64_t>(chunk.tokens);
  const auto choice = static_cast<std::size_t>(chunk.index);
  if (texts_.size() <= choice) texts_.resize(choice + 1, kHashBegin);
  texts_[choice] = Hash(Hash(texts_[choice], chunk.text), chunk.extra_json);
}

void ShadowSide::Reset() {
  first_token_ = {};
  tokens_ = 0;
  texts_.clear();
}

void ShadowSide::End(bool answered, Nanos now) {
  ended_ = true;
  answered_ = answered;
  end_ = now;
  if (first_token_ == Nanos{}) first_token_ = now;
}

void ShadowStats::Side::Add(const ShadowSide& side) {
  ttft_ns.fetch_add(FromSeconds(side.ttft_s()).count());
  e2e_ns.fetch_add(FromSeconds(side.e2e_s()).count());
  tokens.fetch_add(side.tokens());
}

ShadowReport::Side ShadowStats::Side::Report() const {
  return {ToSeconds(Nanos(ttft_ns.load())), ToSeconds(Nanos(e2e_ns.load())), tokens.load()};
}

void ShadowStats::End(const bool* answered) {
  running_.fetch_sub(1);
  (answered == nullptr ? cancelled_ : *answered ? answered_ : failed_).fetch_add(1);
}

void ShadowStats::Compare(const ShadowSide& request, const ShadowSide& copy) {
  (request.WroteTheSame(copy) ? same_ : different_).fetch_add(1);
  request_.Add(request);
  copy_.Add(copy);
}

ShadowReport ShadowStats::Report(const std::string& model) const {
  ShadowReport report;
  report.model = model;
  report.answered = answered_.load();
  report.failed = failed_.load();
  report.skipped = skipped_.load();
  report.cancelled = cancelled_.load();
  report.running = running_.load();
  report.same = same_.load();
  report.different = different_.load();
  report.request = request_.Report();
  report.copy = copy_.Report();
  return report;
}

ShadowCopy::ShadowCopy(std::shared_ptr<ShadowPair> pair, std::function<void()> ended,
                       std::function<void()> over)
    : pair_(std::move(pair)), ended_(std::move(ended)), over_(std::move(over)) {
  pair_->stats->Begin();
}

ShadowCopy::~ShadowCopy() {
  attempt_.reset();
  if (!pair_->copy.ended()) pair_->stats->End(nullptr);
  over_();
}

void ShadowCopy::Start(Origin& origin, std::shared_ptr<const api::ChatRequest> request,
                       const std::string& model) {
  attempt_ = origin.Start(std::move(request), model, this);
}

void ShadowCopy::OnChunk(api::ChatChunk chunk) { pair_->copy.Add(chunk, net::MonotonicNow()); }
void ShadowCopy::OnComplete(const api::Usage&) { End(true); }
void ShadowCopy::OnFailure(Failure) { End(false); }

void ShadowCopy::End(bool answered) {
  pair_->copy.End(answered, net::MonotonicNow());
  pair_->stats->End(&answered);
  pair_->CompareWhenBothEnded();
  ended_();
}

}  // namespace tare::gateway
