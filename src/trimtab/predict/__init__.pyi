from .cost.constants import (
    ENOUGH_STEPS as ENOUGH_STEPS,
    Calibration as Calibration,
    calibration as calibration,
)
from .cost.correction import (
    EarlierRun as EarlierRun,
    GuardedEstimates as GuardedEstimates,
    GuardedEstimator as GuardedEstimator,
    shipped_corrections as shipped_corrections,
)
from .cost.demand import Operations as Operations, demand_of as demand_of, is_half as is_half
from .cost.energy import Power as Power, energy_constants as energy_constants, power as power
from .cost.estimator import (
    USABLE_DEVICE_MEMORY as USABLE_DEVICE_MEMORY,
    USABLE_HOST_MEMORY as USABLE_HOST_MEMORY,
    AnalyticEstimator as AnalyticEstimator,
    Placements as Placements,
    StepEstimates as StepEstimates,
    kinds as kinds,
    restart_factor as restart_factor,
    time_range as time_range,
)
from .cost.fit import (
    Unseen as Unseen,
    calibrate as calibrate,
    calibration_data as calibration_data,
    cases as cases,
    cpu_calibration_data as cpu_calibration_data,
    fit_constants as fit_constants,
    fit_cpu_constants as fit_cpu_constants,
    leave_one_model_out as leave_one_model_out,
    leave_two_models_out as leave_two_models_out,
    predict_memory as predict_memory,
    predict_seconds as predict_seconds,
    ranges_without_the_model as ranges_without_the_model,
)
from .cost.learning import (
    OUTCOMES_TRIED as OUTCOMES_TRIED,
    OutcomeTrial as OutcomeTrial,
    corrected_memory as corrected_memory,
    corrections_data as corrections_data,
    guarded_memory as guarded_memory,
    learn_corrections as learn_corrections,
    spreads_without_the_model as spreads_without_the_model,
    try_outcomes as try_outcomes,
)
from .cost.measurements import (
    BUNDLED_STAGES as BUNDLED_STAGES,
    BUNDLED_STEPS as BUNDLED_STEPS,
    MeasuredStep as MeasuredStep,
    read_measurements as read_measurements,
    read_stages as read_stages,
)
from .cost.scale_out import (
    SHARDINGS as SHARDINGS,
    Layouts as Layouts,
    ScaleOutAssumptions as ScaleOutAssumptions,
    all_reduce_seconds as all_reduce_seconds,
    blocks_of as blocks_of,
    exposed_seconds as exposed_seconds,
    kept_shares as kept_shares,
    straggler_factor as straggler_factor,
)
from .cost.step_time import (
    Hardware as Hardware,
    OperationTimes as OperationTimes,
    cpu_step_time as cpu_step_time,
    operation_times as operation_times,
)
from .cost.traced import (
    TRACED_COLUMNS as TRACED_COLUMNS,
    Circumstances as Circumstances,
    TracedDemand as TracedDemand,
    device_columns as device_columns,
    traced_demand as traced_demand,
    traced_total as traced_total,
)
from .cost.traced_fit import (
    OWN_SOURCE as OWN_SOURCE,
    FittedLaws as FittedLaws,
    TracedModel as TracedModel,
    TracedRanges as TracedRanges,
    TracedRows as TracedRows,
    fit_laws as fit_laws,
    learn_ranges as learn_ranges,
    learn_traced as learn_traced,
    network_kind as network_kind,
    shipped_traced as shipped_traced,
    traced_data as traced_data,
)
from .fewshot.case import (
    METRICS as METRICS,
    SCALES as SCALES,
    SETTINGS as SETTINGS,
    Array as Array,
    Case as Case,
    metrics_table as metrics_table,
    settings_table as settings_table,
)
from .fewshot.drift import (
    DriftFinding as DriftFinding,
    all_drift as all_drift,
    drift_after as drift_after,
    raise_events as raise_events,
)
from .fewshot.foundation import (
    Foundation as Foundation,
    load_foundation as load_foundation,
    shipped_foundation as shipped_foundation,
)
from .fewshot.outcomes import (
    believable as believable,
    catch_up as catch_up,
    compared as compared,
    measured_after as measured_after,
    measured_in as measured_in,
    note_outcome as note_outcome,
    quantity_at as quantity_at,
    remember as remember,
)
from .fewshot.prediction import (
    PredictedConfiguration as PredictedConfiguration,
    Prediction as Prediction,
    cost_scale as cost_scale,
    explained as explained,
    predict as predict,
)
from .fewshot.pretraining import pretrain as pretrain
from .fewshot.report import prediction_report as prediction_report
from .fewshot.update import (
    UpdatePlan as UpdatePlan,
    WeightsComparison as WeightsComparison,
    plan_update as plan_update,
    update_weights as update_weights,
)
from .fewshot.versions import (
    SHIPPED_VERSION as SHIPPED_VERSION,
    Versions as Versions,
    current_foundation as current_foundation,
    version_name as version_name,
)
from .gaussian_process import condition as condition
from .guard import MODEL as MODEL, RULE as RULE
from .interval import conformal_interval as conformal_interval
from .jobs.durations import (
    Durations as Durations,
    JobFeatures as JobFeatures,
    WorkLeft as WorkLeft,
)
from .jobs.training_data import (
    Configurations as Configurations,
    DataSet as DataSet,
    LocalJob as LocalJob,
    Points as Points,
    local_job as local_job,
    read_data as read_data,
    read_local as read_local,
    read_points as read_points,
)
from .jobs.training_importance import (
    Importance as Importance,
    forest_importance as forest_importance,
    model_importance as model_importance,
)
from .jobs.training_model import (
    TRIAL as TRIAL,
    StepTimeModel as StepTimeModel,
    StepTimeRule as StepTimeRule,
    StepTrial as StepTrial,
    forecast as forecast,
)
