// Return on investment by quarter (SPEC row EC5). In quarter q = 0, 1, ... of the plan
//   revenue(q) = base_revenue (1 + growth)^q * revenue_share      daily-user growth
//   saving(q)  = saving_base * replacement_rate * retention^q     agents' work replaced, decaying
//   benefit(q) = benefit_base * effectiveness (1 - learning^q)    knowledge base, saturating
// and each quarter's flow is counted at its end: npv = sum flow(q) / (1 + r)^((q + 1)/4) - outlay.
//
// The values published for it (-12.6, 158.3, 421.9) come out only with the exponent's division
// outside its parenthesis, flow / ((1 + r)^(q + 1) / 4), which multiplies every flow by four;
// PublishedSlip reproduces that so that a report can show both.
// Amounts are in the caller's currency.
#pragma once

#include <optional>
#include <vector>

#include "econ/discounting.h"

namespace tare::econ {

struct RoiInputs {
  double outlay = 280;
  double base_revenue_per_quarter = 120;
  double user_growth_per_quarter = 0;  // beta
  double revenue_share = 0.03;
  double saving_base_per_quarter = 18;
  double replacement_rate = 0;
  double saving_retention = 0.85;  // what is left of the saving a quarter later
  double benefit_base_per_quarter = 45;
  double effectiveness = 0;  // eta
  double learning_retention = 0.92;
  double rate_per_year = 0.12;
  int quarters = 12;
};

struct RoiQuarter {
  double revenue = 0;
  double saving = 0;
  double benefit = 0;
  double total() const { return revenue + saving + benefit; }
};

struct RoiResult {
  std::vector<RoiQuarter> quarters;
  double npv = 0;
  std::optional<RateOfReturn> irr;
  std::optional<double> payback_years;  // undiscounted
};

double RoiNpv(const RoiInputs& inputs);
RoiResult ReturnOnInvestment(const RoiInputs& inputs);

// The published arithmetic, slip included (see above): never used for advice.
double RoiNpvWithPublishedSlip(const RoiInputs& inputs);

}  // namespace tare::econ
