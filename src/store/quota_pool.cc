#include "store/quota_pool.h"

#include <fmt/format.h>
#include <libpq-fe.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace tare::store {

namespace {

using Clock = std::chrono::steady_clock;

// The server's own limits, shorter than a call's patience: what nobody waits for any more must not
// hold the tenant's row.
constexpr const char* kPatienceMs = "2000";
constexpr const char* kStatementOptions = "-c statement_timeout=2000 -c lock_timeout=2000";
constexpr int kTries = 4;

// Several gateways may start at once: CREATE ... IF NOT EXISTS alone would let them collide.
constexpr const char* kCreate = R"(
  BEGIN;
  SELECT pg_advisory_xact_lock(7221);
  CREATE TABLE IF NOT EXISTS tare_quotas (
    tenant text PRIMARY KEY,
    minute bigint NOT NULL, minute_requests bigint NOT NULL, minute_tokens bigint NOT NULL,
    month bigint NOT NULL, month_nano_usd bigint NOT NULL);
  CREATE TABLE IF NOT EXISTS tare_usage (
    month bigint NOT NULL, tenant text NOT NULL, model text NOT NULL,
    requests bigint NOT NULL, prompt_tokens bigint NOT NULL, cached_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL, nano_usd bigint NOT NULL,
    PRIMARY KEY (month, tenant, model));
  COMMIT)";

// $1 tenant, $2 minute, $3 month; $4-$6 needed, $7-$9 wanted, $10-$12 limits (null: none). The row
// is locked first, so that its latest state is what is counted from. A gateway whose clock is a
// minute behind counts in the newer minute.
constexpr const char* kTake = R"(
  WITH held AS (
    SELECT tenant, CASE WHEN minute >= $2 THEN minute_requests ELSE 0 END AS r,
           CASE WHEN minute >= $2 THEN minute_tokens ELSE 0 END AS t,
           CASE WHEN month >= $3 THEN month_nano_usd ELSE 0 END AS m
    FROM tare_quotas WHERE tenant = $1 FOR UPDATE),
  grant_ AS (
    SELECT tenant, r, t, m,
           CASE WHEN $10::bigint IS NULL THEN $7::bigint
                ELSE GREATEST($4::bigint, LEAST($7::bigint, ($10::bigint - r) / 8)) END AS gr,
           CASE WHEN $11::bigint IS NULL THEN $8::bigint
                ELSE GREATEST($5::bigint, LEAST($8::bigint, ($11::bigint - t) / 8)) END AS gt,
           CASE WHEN $12::bigint IS NULL THEN $9::bigint
                ELSE GREATEST($6::bigint, LEAST($9::bigint, ($12::bigint - m) / 8)) END AS gm
    FROM held
    WHERE ($10::bigint IS NULL OR r + $4::bigint <= $10::bigint)
      AND ($11::bigint IS NULL OR t + $5::bigint <= $11::bigint)
      AND ($12::bigint IS NULL OR m + $6::bigint <= $12::bigint))
  UPDATE tare_quotas q
  SET minute = GREATEST(q.minute, $2), minute_requests = g.r + g.gr, minute_tokens = g.t + g.gt,
      month = GREATEST(q.month, $3), month_nano_usd = g.m + g.gm
  FROM grant_ g WHERE q.tenant = g.tenant
  RETURNING g.gr, g.gt, g.gm, q.minute, q.minute_requests, q.minute_tokens, q.month,
            q.month_nano_usd)";
constexpr const char* kFirst =
    "INSERT INTO tare_quotas VALUES ($1, $2, 0, 0, $3, 0) ON CONFLICT (tenant) DO NOTHING";
constexpr const char* kOne =
    "SELECT tenant, minute, minute_requests, minute_tokens, month, month_nano_usd "
    "FROM tare_quotas WHERE tenant = $1";
constexpr const char* kGiveBack = R"(
  UPDATE tare_quotas SET
    minute_requests = minute_requests - CASE WHEN minute = $2 THEN $4::bigint ELSE 0 END,
    minute_tokens = minute_tokens - CASE WHEN minute = $2 THEN $5::bigint ELSE 0 END,
    month_nano_usd = month_nano_usd - CASE WHEN month = $3 THEN $6::bigint ELSE 0 END
  WHERE tenant = $1)";
// $1: rows as a JSON array. One statement, so that all of it counts or nothing.
constexpr const char* kAddUsage = R"(
  INSERT INTO tare_usage
  SELECT month, tenant, model, sum(requests)::bigint, sum(prompt_tokens)::bigint,
         sum(cached_tokens)::bigint, sum(output_tokens)::bigint, sum(nano_usd)::bigint
  FROM jsonb_to_recordset($1::jsonb) AS more(
    month bigint, tenant text, model text, requests bigint, prompt_tokens bigint,
    cached_tokens bigint, output_tokens bigint, nano_usd bigint)
  GROUP BY month, tenant, model
  ON CONFLICT (month, tenant, model) DO UPDATE SET
    requests = tare_usage.requests + EXCLUDED.requests,
    prompt_tokens = tare_usage.prompt_tokens + EXCLUDED.prompt_tokens,
    cached_tokens = tare_usage.cached_tokens + EXCLUDED.cached_tokens,
    output_tokens = tare_usage.output_tokens + EXCLUDED.output_tokens,
    nano_usd = tare_usage.nano_usd + EXCLUDED.nano_usd)";
constexpr const char* kAllUsage =
    "SELECT month, tenant, model, requests, prompt_tokens, cached_tokens, output_tokens, nano_usd "
    "FROM tare_usage ORDER BY month, tenant, model";
constexpr const char* kAllQuotas =
    "SELECT tenant, minute, minute_requests, minute_tokens, month, month_nano_usd "
    "FROM tare_quotas ORDER BY tenant";

struct Clearer {
  void operator()(PGresult* result) const { PQclear(result); }
  void operator()(PGconn* connection) const { PQfinish(connection); }
};
using Answer = std::unique_ptr<PGresult, Clearer>;

std::int64_t Integer(const PGresult* result, int row, int column) {
  const std::string_view text(PQgetvalue(result, row, column));
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}
std::string Text(const PGresult* result, int row, int column) {
  return PQgetvalue(result, row, column);
}
QuotaRow ReadQuota(const PGresult* result, int row, int from, std::string tenant) {
  return {std::move(tenant),
          Integer(result, row, from),
          Integer(result, row, from + 1),
          Integer(result, row, from + 2),
          Integer(result, row, from + 3),
          Integer(result, row, from + 4)};
}

// Whether the row would have granted the request, as kTake sees it.
bool HasRoom(const QuotaRow& row, const LeaseRequest& request) {
  const bool minute = row.minute >= request.minute;
  const bool month = row.month >= request.month;
  const auto fits = [](std::int64_t used, std::int64_t need, const std::optional<std::int64_t>& l) {
    return !l || used + need <= *l;
  };
  return fits(minute ? row.minute_requests : 0, request.need.requests, request.limit_requests) &&
         fits(minute ? row.minute_tokens : 0, request.need.tokens, request.limit_tokens) &&
         fits(month ? row.month_nano_usd : 0, request.need.nano_usd, request.limit_nano_usd);
}

using Value = std::optional<std::string>;
Value Of(std::int64_t number) { return std::to_string(number); }
Value Of(const std::optional<std::int64_t>& number) {
  return number ? Value(std::to_string(*number)) : std::nullopt;
}

}  // namespace

bool IsPostgresUrl(const std::string& text) {
  return text.starts_with("postgresql://") || text.starts_with("postgres://");
}

// One connection, made when it is needed and anew when it broke.
class PostgresQuotaPool::Connection {
 public:
  Connection(std::string url, std::chrono::milliseconds patience)
      : url_(std::move(url)), patience_(patience) {}

  // The connection for one call, however many statements it runs: all of them, and connecting,
  // share the call's patience. Others wait until it is over.
  class Turn {
   public:
    explicit Turn(Connection& connection)
        : connection_(connection),
          lock_(connection.mutex_),
          deadline_(Clock::now() + connection.patience_) {}

    // `values` by position; the answer is of a statement that succeeded.
    Result<Answer> Run(const char* sql, std::span<const Value> values) {
      TARE_RETURN_IF_ERROR(connection_.Connect(deadline_));
      std::vector<const char*> pointers;
      for (const Value& value : values) pointers.push_back(value ? value->c_str() : nullptr);
      const int sent =
          PQsendQueryParams(connection_.connection_.get(), sql, static_cast<int>(pointers.size()),
                            nullptr, pointers.data(), nullptr, nullptr, /*resultFormat=*/0);
      TARE_TRY(Answer answer, connection_.Await(sent, deadline_));
      return connection_.Checked(std::move(answer));
    }
    Status RunAll(const char* sql) {
      TARE_RETURN_IF_ERROR(connection_.Connect(deadline_));
      const int sent = PQsendQuery(connection_.connection_.get(), sql);
      TARE_TRY(Answer answer, connection_.Await(sent, deadline_));
      TARE_TRY(const Answer checked, connection_.Checked(std::move(answer)));
      return {};
    }

   private:
    Connection& connection_;
    const std::lock_guard<std::mutex> lock_;
    const Clock::time_point deadline_;
  };

 private:
  Error Late() const {
    return {ErrorKind::kUnavailable,
            fmt::format("quota database: no answer within {} ms", patience_.count()), "", ""};
  }

  // Until the socket is ready for `events` or the deadline passes, which is false.
  bool Wait(int events, Clock::time_point deadline) const {
    while (true) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      if (left <= 0) return false;
      pollfd ready{PQsocket(connection_.get()), static_cast<short>(events), 0};
      const int count = ::poll(&ready, 1, static_cast<int>(left));
      if (count > 0) return true;
      if (count < 0 && errno != EINTR) return true;  // libpq finds out what is wrong
    }
  }

  // The last answer to what was sent, or the first that is a failure. The server's own time limits
  // do not hold where it is stopped or the network swallows what it sends, nor over several
  // statements: then the connection is given up here.
  Result<Answer> Await(int sent, Clock::time_point deadline) {
    Answer last;
    if (sent != 1) return last;  // Checked says why
    while (true) {
      while (PQisBusy(connection_.get()) == 0) {
        Answer next(PQgetResult(connection_.get()));
        if (next == nullptr) return last;
        const bool failed = PQresultStatus(last.get()) == PGRES_FATAL_ERROR;
        if (last == nullptr || !failed) last = std::move(next);
      }
      if (!Wait(POLLIN, deadline)) {
        connection_.reset();
        return tl::unexpected(Late());
      }
      if (PQconsumeInput(connection_.get()) != 1) return Answer();
    }
  }

  // Only the look-up of a host's name, which libpq does before anything else, may take longer.
  Status Connect(Clock::time_point deadline) {
    if (connection_ != nullptr && PQstatus(connection_.get()) == CONNECTION_OK) return {};
    const std::array<const char*, 5> names = {"dbname", "options", "tcp_user_timeout",
                                              "application_name", nullptr};
    const std::array<const char*, 5> values = {url_.c_str(), kStatementOptions, kPatienceMs, "tare",
                                               nullptr};
    connection_.reset(PQconnectStartParams(names.data(), values.data(), /*expand_dbname=*/1));
    auto state = connection_ == nullptr || PQstatus(connection_.get()) == CONNECTION_BAD
                     ? PGRES_POLLING_FAILED
                     : PGRES_POLLING_WRITING;
    while (state == PGRES_POLLING_READING || state == PGRES_POLLING_WRITING) {
      if (!Wait(state == PGRES_POLLING_READING ? POLLIN : POLLOUT, deadline)) {
        connection_.reset();
        return tl::unexpected(Late());
      }
      state = PQconnectPoll(connection_.get());
    }
    if (state != PGRES_POLLING_OK) {
      const std::string why =
          connection_ == nullptr ? "no memory" : PQerrorMessage(connection_.get());
      connection_.reset();
      return Fail(ErrorKind::kUnavailable, "cannot reach the quota database: {}", Trim(why));
    }
    PQsetNoticeProcessor(
        connection_.get(), [](void*, const char*) {}, nullptr);
    return {};
  }

  Result<Answer> Checked(Answer answer) {
    const ExecStatusType status = PQresultStatus(answer.get());
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) return answer;
    const std::string why = PQerrorMessage(connection_.get());
    // A broken connection is not used again, nor one that is left within a transaction.
    if (PQstatus(connection_.get()) != CONNECTION_OK ||
        PQtransactionStatus(connection_.get()) != PQTRANS_IDLE) {
      connection_.reset();
    }
    return Fail(ErrorKind::kUnavailable, "quota database: {}", Trim(why));
  }

  const std::string url_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;  // held for a turn
  std::unique_ptr<PGconn, Clearer> connection_;
};

PostgresQuotaPool::PostgresQuotaPool(const std::string& url, std::chrono::milliseconds patience)
    : leases_(std::make_unique<Connection>(url, patience)),
      books_(std::make_unique<Connection>(url, patience)) {}
PostgresQuotaPool::~PostgresQuotaPool() = default;

Result<std::unique_ptr<PostgresQuotaPool>> PostgresQuotaPool::Open(
    const std::string& url, std::chrono::milliseconds patience) {
  std::unique_ptr<PostgresQuotaPool> pool(new PostgresQuotaPool(url, patience));
  TARE_RETURN_IF_ERROR(Connection::Turn(*pool->books_).RunAll(kCreate));
  return pool;
}

Result<Lease> PostgresQuotaPool::Take(const LeaseRequest& request) {
  const std::array<Value, 12> values = {request.tenant,
                                        Of(request.minute),
                                        Of(request.month),
                                        Of(request.need.requests),
                                        Of(request.need.tokens),
                                        Of(request.need.nano_usd),
                                        Of(request.want.requests),
                                        Of(request.want.tokens),
                                        Of(request.want.nano_usd),
                                        Of(request.limit_requests),
                                        Of(request.limit_tokens),
                                        Of(request.limit_nano_usd)};
  const std::span<const Value> all(values);
  Connection::Turn turn(*leases_);
  Lease lease;
  // Between two statements other gateways may begin the tenant's row, or give back: look again.
  for (int tries = 0; tries < kTries; ++tries) {
    TARE_TRY(const Answer answer, turn.Run(kTake, all));
    if (PQntuples(answer.get()) > 0) {
      lease.granted = true;
      lease.amounts = {Integer(answer.get(), 0, 0), Integer(answer.get(), 0, 1),
                       Integer(answer.get(), 0, 2)};
      lease.taken = ReadQuota(answer.get(), 0, 3, request.tenant);
      return lease;
    }
    TARE_TRY(const Answer now, turn.Run(kOne, all.first(1)));
    if (PQntuples(now.get()) == 0) {
      TARE_TRY(const Answer first, turn.Run(kFirst, all.first(3)));
      continue;
    }
    lease.taken = ReadQuota(now.get(), 0, 1, request.tenant);
    if (!HasRoom(lease.taken, request)) break;
  }
  return lease;
}

Status PostgresQuotaPool::GiveBack(const std::string& tenant, std::int64_t minute,
                                   std::int64_t month, const QuotaAmounts& amounts) {
  const std::array<Value, 6> values = {tenant,
                                       Of(minute),
                                       Of(month),
                                       Of(amounts.requests),
                                       Of(amounts.tokens),
                                       Of(amounts.nano_usd)};
  TARE_TRY(const Answer answer, Connection::Turn(*books_).Run(kGiveBack, values));
  return {};
}

Status PostgresQuotaPool::AddUsage(std::span<const UsageRow> more) {
  if (more.empty()) return {};
  nlohmann::json rows = nlohmann::json::array();
  for (const UsageRow& row : more) {
    rows.push_back({{"month", row.month},
                    {"tenant", row.tenant},
                    {"model", row.model},
                    {"requests", row.requests},
                    {"prompt_tokens", row.prompt_tokens},
                    {"cached_tokens", row.cached_tokens},
                    {"output_tokens", row.output_tokens},
                    {"nano_usd", row.nano_usd}});
  }
  const Value text = rows.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  TARE_TRY(const Answer answer, Connection::Turn(*books_).Run(kAddUsage, {&text, 1}));
  return {};
}

Result<std::vector<UsageRow>> PostgresQuotaPool::Usage() {
  TARE_TRY(const Answer answer, Connection::Turn(*books_).Run(kAllUsage, {}));
  std::vector<UsageRow> rows;
  for (int i = 0; i < PQntuples(answer.get()); ++i) {
    const auto integer = [&](int column) { return Integer(answer.get(), i, column); };
    rows.push_back({integer(0), Text(answer.get(), i, 1), Text(answer.get(), i, 2), integer(3),
                    integer(4), integer(5), integer(6), integer(7)});
  }
  return rows;
}

Result<std::vector<QuotaRow>> PostgresQuotaPool::Quotas() {
  TARE_TRY(const Answer answer, Connection::Turn(*books_).Run(kAllQuotas, {}));
  std::vector<QuotaRow> rows;
  for (int i = 0; i < PQntuples(answer.get()); ++i) {
    rows.push_back(ReadQuota(answer.get(), i, 1, Text(answer.get(), i, 0)));
  }
  return rows;
}

}  // namespace tare::store
