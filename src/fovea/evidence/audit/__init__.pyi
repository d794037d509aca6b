from .audit import Audit as Audit
from .audit import audit as audit
from .clusters import Cluster as Cluster
from .clusters import clusters_of as clusters_of
from .findings import AuditFinding as AuditFinding
from .report import Audited as Audited
from .report import ClassAudit as ClassAudit
from .report import Findings as Findings
