# ruff: noqa: ARG002, SLF001 - the emulator's engine calls provisioners with these arguments; these reach into its stores
"""EC2 resource types that the emulator lacks or gets wrong. They are records: no packet is filtered, no flow is logged.

Unlike our services' provisioners these run on the event loop, as the emulator's own: they touch its stores.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

__all__ = [
    "AddressProvisioner",
    "FlowLogProvisioner",
    "NatGatewayProvisioner",
    "SecurityGroupRuleProvisioner",
    "VpcEndpointProvisioner",
    "VpcProvisioner",
]

Properties = Mapping[str, Any]
Provisioned = tuple[str, dict[str, Any]]

_HOSTED_ZONE = "Z7HUB22UULQXV"


class InvalidNetworkError(ValueError):
    """EC2 would refuse the resource; the text is like EC2's."""


def _new_id(prefix: str) -> str:
    return f"{prefix}-0{secrets.token_hex(8)}"


def _found(store: Mapping[str, Any], kind: str, resource_id: object) -> Any:
    if resource_id not in store:
        raise InvalidNetworkError(f"The {kind} ID '{resource_id}' does not exist")
    return store[str(resource_id)]


def _is_true(value: object) -> bool:
    return str(value).lower() == "true"


class VpcProvisioner:
    """``AWS::EC2::VPC`` of the emulator with the attributes that it leaves out (template reference: return values)."""

    def __init__(self) -> None:
        from ministack.services.cloudformation import provisioners

        self._emulated = provisioners._RESOURCE_HANDLERS["AWS::EC2::VPC"]

    def create(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        """Create the VPC."""
        return self._completed(self._emulated["create"](logical_id, properties, stack))

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str, logical_id: str | None = None) -> Provisioned:
        """Change the VPC, or replace it."""
        return self._completed(self._emulated["update"](physical_id, old, new, stack, logical_id))

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete the VPC."""
        self._emulated["delete"](physical_id, properties)

    @staticmethod
    def _completed(provisioned: Provisioned) -> Provisioned:
        from ministack.services import ec2

        vpc_id, attributes = provisioned
        return vpc_id, {"CidrBlock": ec2._vpcs[vpc_id]["CidrBlock"], "CidrBlockAssociations": [], "Ipv6CidrBlocks": [], **attributes}


class VpcEndpointProvisioner:
    """``AWS::EC2::VPCEndpoint`` of the emulator with EC2's checks, DNS entries and network interfaces."""

    def __init__(self) -> None:
        from ministack.services.cloudformation import provisioners

        self._emulated = provisioners._RESOURCE_HANDLERS["AWS::EC2::VPCEndpoint"]

    def create(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        """Create the endpoint; raises `InvalidNetworkError`."""
        self._check(properties, None)
        return self._completed(self._emulated["create"](logical_id, properties, stack), properties)

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Provisioned:
        """Change the endpoint; raises `InvalidNetworkError`."""
        self._check(new, physical_id)
        return self._completed(self._emulated["update"](physical_id, old, new, stack), new)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete the endpoint."""
        self._emulated["delete"](physical_id, properties)

    def _check(self, properties: Properties, physical_id: str | None) -> None:
        from ministack.services import ec2

        vpc = _found(ec2._vpcs, "vpc", properties.get("VpcId"))
        for table in properties.get("RouteTableIds", []):
            _found(ec2._route_tables, "routeTable", table)
        for group in properties.get("SecurityGroupIds", []):
            _found(ec2._security_groups, "security group", group)
        zones = [_found(ec2._subnets, "subnet", subnet)["AvailabilityZone"] for subnet in properties.get("SubnetIds", [])]
        if len(set(zones)) < len(zones):
            raise InvalidNetworkError("DuplicateSubnetsInSameZone: Found another VPC endpoint subnet in the same availability zone")
        if not _is_true(properties.get("PrivateDnsEnabled", False)):
            return
        if not (vpc.get("EnableDnsSupport", True) and vpc.get("EnableDnsHostnames", False)):
            raise InvalidNetworkError(
                "Enabling private DNS requires both enableDnsSupport and enableDnsHostnames VPC attributes set to true for "
                f"{properties['VpcId']}"
            )
        for other in ec2._vpc_endpoints.values():
            same = (other["VpcId"], other["ServiceName"]) == (properties["VpcId"], properties.get("ServiceName"))
            if same and _is_true(other.get("PrivateDnsEnabled")) and other["VpcEndpointId"] != physical_id:
                raise InvalidNetworkError(
                    "private-dns-enabled cannot be set because there is already a conflicting DNS domain for "
                    f"{properties.get('ServiceName')} in the VPC {properties['VpcId']}"
                )

    @staticmethod
    def _completed(provisioned: Provisioned, properties: Properties) -> Provisioned:
        from ministack.services import ec2

        endpoint_id, attributes = provisioned
        if properties.get("VpcEndpointType", "Gateway") != "Interface":
            return endpoint_id, attributes
        endpoint = ec2._vpc_endpoints[endpoint_id]
        subnets = endpoint["SubnetIds"]
        if len(endpoint["NetworkInterfaceIds"]) != len(subnets):
            endpoint["NetworkInterfaceIds"] = [_new_id("eni") for _ in subnets]
        _, _, region, service = str(endpoint["ServiceName"]).split(".", 3)
        zones = [f"-{ec2._subnets[subnet]['AvailabilityZone']}" for subnet in subnets]
        names = [f"{endpoint_id}-{endpoint_id[-8:]}{zone}" for zone in ("", *zones)]
        entries = [f"{_HOSTED_ZONE}:{name}.{service}.{region}.vpce.amazonaws.com" for name in names]
        endpoint["DnsEntries"] = entries
        return endpoint_id, {**attributes, "DnsEntries": entries, "NetworkInterfaceIds": endpoint["NetworkInterfaceIds"]}


class SecurityGroupRuleProvisioner:
    """``AWS::EC2::SecurityGroupIngress`` or ``AWS::EC2::SecurityGroupEgress``.

    Args:
        egress: which of both.
    """

    def __init__(self, *, egress: bool) -> None:
        self._side = "IpPermissionsEgress" if egress else "IpPermissions"
        self._peer = "DestinationSecurityGroupId" if egress else "SourceSecurityGroupId"

    def create(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        """Add the rule to its group; raises `InvalidNetworkError`."""
        from ministack.services import ec2

        group = _found(ec2._security_groups, "security group", properties.get("GroupId"))
        if self._peer in properties:
            _found(ec2._security_groups, "security group", properties[self._peer])
        rule_id = _new_id("sgr")
        group[self._side].append(self._rule(properties, rule_id))
        return rule_id, {"Id": rule_id}

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Provisioned:
        """Change the description, the only thing that does not replace a rule."""
        from ministack.services import ec2

        self.delete(physical_id, old)
        _found(ec2._security_groups, "security group", new.get("GroupId"))[self._side].append(self._rule(new, physical_id))
        return physical_id, {"Id": physical_id}

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Take the rule out of its group, if both are there."""
        from ministack.services import ec2

        group = ec2._security_groups.get(properties.get("GroupId"))
        if group is not None:
            group[self._side] = [rule for rule in group[self._side] if rule.get("SecurityGroupRuleId") != physical_id]

    @staticmethod
    def _rule(properties: Properties, rule_id: str) -> dict[str, Any]:
        from ministack.services.cloudformation import provisioners

        (rule,) = provisioners._ec2_sg_permissions([dict(properties)])
        return {**rule, "SecurityGroupRuleId": rule_id}


class _Record:
    """A resource that is one record of one of the emulator's stores, with tags."""

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Forget the record, if it is there."""
        from ministack.services import ec2

        self._store().pop(physical_id, None)
        ec2._tags.pop(physical_id, None)

    def _store(self) -> MutableMapping[str, Any]:
        raise NotImplementedError

    def _put(self, record_id: str, record: Mapping[str, Any], properties: Properties) -> None:
        self._store()[record_id] = dict(record)
        self._tag(record_id, properties, {})

    @staticmethod
    def _tag(record_id: str, properties: Properties, old: Properties) -> None:
        from ministack.services.cloudformation import provisioners

        provisioners._ec2_apply_tags(record_id, properties, old)


class FlowLogProvisioner(_Record):
    """``AWS::EC2::FlowLog``."""

    _KNOWN: Sequence[str] = ("_vpcs", "_subnets", "_network_interfaces")

    def create(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        """Record the flow log; raises `InvalidNetworkError`."""
        from ministack.services import ec2

        resource = properties.get("ResourceId")
        if not any(resource in getattr(ec2, store) for store in self._KNOWN):
            raise InvalidNetworkError(f"The resource ID '{resource}' of the flow log does not exist")
        kind = properties.get("LogDestinationType", "cloud-watch-logs")
        destination = properties.get("LogDestination") or properties.get("LogGroupName")
        if destination is None:
            raise InvalidNetworkError("A flow log needs LogDestination or LogGroupName")
        if kind == "cloud-watch-logs" and "DeliverLogsPermissionArn" not in properties:
            raise InvalidNetworkError("DeliverLogsPermissionArn is required for a flow log to CloudWatch Logs")
        flow_log = _new_id("fl")
        record = {
            "FlowLogId": flow_log,
            "ResourceId": resource,
            "ResourceType": properties.get("ResourceType"),
            "TrafficType": properties.get("TrafficType", "ALL"),
            "LogDestinationType": kind,
            "LogDestination": destination,
            "FlowLogStatus": "ACTIVE",
            "CreationTime": ec2._now_ts(),
        }
        self._put(flow_log, record, properties)
        return flow_log, {"Id": flow_log}

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Provisioned:
        """Change tags, the only thing that does not replace a flow log."""
        self._tag(physical_id, new, old)
        return physical_id, {"Id": physical_id}

    def _store(self) -> MutableMapping[str, Any]:
        from ministack.services import ec2

        store: MutableMapping[str, Any] = ec2._flow_logs
        return store


class AddressProvisioner(_Record):
    """``AWS::EC2::EIP``. Its physical id (what Ref gives) is the address."""

    def create(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        """Record an address."""
        from ministack.services import ec2

        allocation, address = _new_id("eipalloc"), ec2._random_ip("52.")
        record = {"AllocationId": allocation, "PublicIp": address, "Domain": properties.get("Domain", "vpc"), "AssociationId": None}
        self._put(allocation, {**record, "InstanceId": None, "NetworkInterfaceId": None, "PrivateIpAddress": None}, properties)
        return address, {"AllocationId": allocation, "PublicIp": address}

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Provisioned:
        """Change tags."""
        allocation = self._allocation(physical_id)
        self._tag(allocation, new, old)
        return physical_id, {"AllocationId": allocation, "PublicIp": physical_id}

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Release the address, if it is there."""
        super().delete(self._allocation(physical_id), properties)

    def _allocation(self, address: str) -> str:
        return next((key for key, record in self._store().items() if record["PublicIp"] == address), address)

    def _store(self) -> MutableMapping[str, Any]:
        from ministack.services import ec2

        store: MutableMapping[str, Any] = ec2._addresses
        return store


class NatGatewayProvisioner(_Record):
    """``AWS::EC2::NatGateway``."""

    def create(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        """Record the gateway; raises `InvalidNetworkError`."""
        from ministack.services import ec2

        subnet = _found(ec2._subnets, "subnet", properties.get("SubnetId"))
        kind = properties.get("ConnectivityType", "public")
        if kind == "public":
            _found(ec2._addresses, "allocation", properties.get("AllocationId"))
        gateway = _new_id("nat")
        record = {
            "NatGatewayId": gateway,
            "SubnetId": subnet["SubnetId"],
            "VpcId": subnet["VpcId"],
            "AllocationId": properties.get("AllocationId"),
            "ConnectivityType": kind,
            "State": "available",
            "CreateTime": ec2._now_ts(),
            "Tags": [],
        }
        self._put(gateway, record, properties)
        return gateway, {"NatGatewayId": gateway}

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Provisioned:
        """Change tags."""
        self._tag(physical_id, new, old)
        return physical_id, {"NatGatewayId": physical_id}

    def _store(self) -> MutableMapping[str, Any]:
        from ministack.services import ec2

        store: MutableMapping[str, Any] = ec2._nat_gateways
        return store
